"""From packets' rows to sessions, sequences, histories and findings: plain functions and classes on Arrow batches.

Each module is one stage. It says which COLUMNS it reads, by which KEY rows are brought together and in which ORDER
they come, and by SCHEMAS which tables it gives; Spark, or a test, does the bringing together. Stages keep state over
batches, bounded as that of `mqproto.captures.decode`, whose rules they use.

1. `sessions.directory` learns from all handshakes who is at which address; that is small, and goes to every stage of
   sessions.
2. `sessions.sessions` gives `relations`, what each packet is to its session, with which packets are joined for all that
   follows.
3. `sequences.sequences` judges what goes end to end, and says for each message when an OrderAck covered it.
4. `messages.journeys` brings together what is of one message, and judges its crossings. The rows that it makes are also
   for `clocks` beside it, how far those of capture points are apart, if there are several; then for `histories`, what
   became of each message; and for `duplicates`, which of its arrivals was new.
5. `findings` has what packets say by themselves.

Most packets are as they should be, and the rules find nothing in them. Three modules show by columns, of many packets
at once, that it is so, and then say what follows. All others go through the rules one by one; tests send all of them
that way, and compare.

- `sessions.steady`: packets of a session that count rightly, and acknowledge what was sent;
- `sequences.stretches`: messages of a sequence that follow one another on each hop;
- `messages.straight`: messages that crossed each hop once, as they came, to their destinations.

`tasks` has who brings which rows to which stage, and where its tables go.

Packets, relations, endings and findings together are the rows of `mqproto decode --json`.
"""
