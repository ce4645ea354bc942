"""End to end: outgoing sequences, incoming sequences with gap holding, order and final acknowledgments.

Only the queue manager where a message began and the one where it ends come in here; one in between passes the
TransactionHeader on and looks at none of it.  [MS-MQQB] 3.1.1.5, 3.1.1.6.2
"""
