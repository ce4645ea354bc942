"""The end-to-end protocol: sequences that go out, sequences that come in, and acknowledgments.

Incoming sequences hold messages behind gaps. Only the queue managers where a message begins and ends its way need this
package; the others on the way pass the TransactionHeader on without reading it.  [MS-MQQB] 3.1.1.5, 3.1.1.6.2
"""
