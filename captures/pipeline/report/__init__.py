"""Turns tables into a page for people: the captures, and the outcome of every message.

It needs no Spark: DuckDB counts in bounded memory, and a report has a fixed number of rows, however large the tables
are.

1. `counts` has a module with SQL statements for each subject; `asking` has what they share. In
   `facts`, `spread` counts durations in buckets, and `overtime` divides time into steps.
2. `facts` defines the facts of a report; `gather` finds them, with `quality`, `routes`, `queues`,
   `messages`, `sequences`, `judgments` and `security`. `stories` has the events in a message's life,
   and `places` finds the packets that show them.
3. `figures` and `routemap` draw facts, with `captures/drawing`. `page` makes one HTML file from the
   template `page.html.j2`, in which `report.js` searches the messages; `summary` has lines for a terminal.

All texts in the tables were written by strangers: `words` makes them harmless.
"""
