"""A node's disk. Committed data is on it, with one flush for each commit, whatever kills the process or the power.

Read store.py first, which joins the two parts: a log of the last transactions (log.py; segments.py its files,
records.py their bytes, recent.py their meaning), and SQLite tables for older transactions (base.py,
simulator/storage/tables.py). recovery.py moves a log that a crash has left to the tables.

    sqlite3 a.sqlite "select * from waiting"

shows all messages of a stopped node, and the older ones of a running node. `mqproto store
backup` copies either. `a.life` beside it tells whether a store was restored from a backup (witnesses/).

While a store is open, `NAME-lock` beside it is locked: a second node is refused at once, and `sqlite3` may look on.
The lock is the operating system's, so it goes with the process, however that ends. Every error is a `StoreError` of one
line that says what to do. care/ has an operator's tools: for damage, copies, repairs, and stores that were moved.
"""

from mqproto.simulator.storage.log import LIMITS, LogLimits
from mqproto.simulator.storage.store import Store

__all__ = ["LIMITS", "LogLimits", "Store"]
