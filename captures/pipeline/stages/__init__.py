"""Makes sessions, sequences, histories and findings from rows of packets.

It consists of plain functions and classes that work on Arrow batches. Each module is one stage. Its COLUMNS name what
it reads, KEY groups the rows, ORDER sorts them, and SCHEMAS has its tables. Spark, or a test, does the grouping and
sorting. Stages keep state from batch to batch, with the limits and the rules of `mqproto.captures.decode`.

1. `sessions.directory` learns from all handshakes which queue manager is at which address; this
   small directory goes to every stage of sessions.
2. `sessions.sessions` makes `relations`, which relate each packet to its session; all later stages
   read packets joined with their relations.
3. `sequences.sequences` judges sequences end to end, and tells for each message when an OrderAck
   covered it.
4. `messages.journeys` groups the rows of one message, and judges its crossings. The same rows go to
   `clocks`, which compares the clocks of several capture points; to `histories`, for the outcome of
   each message; and to `duplicates`, which tells which of the message's arrivals were new.
5. `findings` has the findings in single packets.

Most packets are correct, and the rules find nothing in them. Three modules prove this with column operations on many
packets at once, and compute their results. All other packets go through the rules one by one. Tests send every packet
through the rules, and compare the results.

- `sessions.steady`: packets of a session with correct counts, which acknowledge only packets that
  were sent;
- `sequences.stretches`: messages of a sequence that follow one another on each hop;
- `messages.straight`: messages that crossed each hop once, unchanged, to their destinations.

`tasks` brings rows to their stages, and puts the tables in their places.

Packets, relations, endings and findings together are the rows of `mqproto decode --json`.
"""
