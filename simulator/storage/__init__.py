"""A node's disk. Committed data survives even if the process is killed or the power fails; each commit takes one flush.

Read store.py first, which joins the two parts: a log of the last transactions, and SQLite tables for older transactions
(base.py, simulator/storage/tables.py). log.py has the log, segments.py its files, records.py their bytes, and recent.py
their meaning. recovery.py moves the leftover log of a crash into the tables.

    sqlite3 a.sqlite "select * from waiting"

shows all messages of a stopped node, and the older ones of a running node. `mqproto store backup` copies the store of
either. The file `a.life` next to a store shows whether it was restored from a backup (witnesses/).

While a store is open, the file `NAME-lock` next to it is locked: a second node is refused at once, but `sqlite3` may
still read. The operating system holds the lock, so it is released when the process ends, for whatever reason. Every
error is a `StoreError` of one line that says what to do. care/ has operators' tools for damaged, copied, repaired and
moved stores.
"""

from mqproto.simulator.storage.log import LIMITS, LogLimits
from mqproto.simulator.storage.store import Store

__all__ = ["LIMITS", "LogLimits", "Store"]
