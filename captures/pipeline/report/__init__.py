"""Turns tables into a page for people: the captures, and the outcome of every message.

Without Spark: DuckDB counts, in bounded memory, and what is shown is a fixed number of rows, however large tables are.

1. In `counts`, each subject has its statements over the tables, and `asking` what they have in common. In `facts`,
   `spread` has durations in buckets, `overtime` the steps of the time.
2. `facts` says what is known at the end and what comes first; `gather` finds it out, with `quality`, `traffic`,
   `routes`, `queues`, `messages`, `sequences`, `judgments` and `security`. `outcomes` tells how messages end, `stories`
   what happened to a message, and `places` finds the packets that show it.
3. `figures` and `routemap` draw facts, by `captures/drawing`. `page` makes one HTML file of it all by the template
   `page.html.j2`, with `embedded` for what can be looked up there by `report.js`; `summary` has lines for a terminal.

All texts in the tables were written by strangers: `words` makes them harmless.
"""
