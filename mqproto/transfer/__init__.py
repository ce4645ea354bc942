"""The end-to-end protocol: outgoing sequences, incoming sequences that hold messages behind gaps, and acknowledgments.

Only the queue managers where a message begins and ends need this package; others on the way pass the
TransactionHeader on unread.  [MS-MQQB] 3.1.1.5, 3.1.1.6.2
"""
