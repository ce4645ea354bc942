"""From tables to a page that people read: what is in the captures, and what became of every message.

Plain functions, without Spark. What is read is bounded: tables are gone through batch by batch, counted, and what is
shown of them is a fixed number of rows, however large they are.

1. In `counts`, `scanning` reads columns of a table, and finds the rows that come first by something;
   `choosing` the keys that do. In `facts`, `spread` counts durations, `overtime` those of each step of the time.
2. `facts` says what is known at the end; `gather` finds it out, with `quality`, `traffic`, `routes`, `queues`,
   `messages`, `sequences`, `judgments` and `security`. `outcomes` tells how messages end, `stories` what happened to a
   message, and `places` finds the packets that show it.
3. `ranking` says what comes first. `figures` and `routemap` draw facts, by `drawing`, and `sparkline` what has room in
   a row of a table. `page` makes one HTML file of it all, out of `sections` and `markup`, with `embedded` for what
   can be looked up there by `report.js`; `summary` has lines for a terminal.

4. `search` finds messages among any number of them, through a `sieve`, which tells which rows may have a text.

All texts in the tables were written by strangers: `words` makes them harmless.
"""
