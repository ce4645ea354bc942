"""A node's disk. What was committed is on it, with one flush for each commit, whatever kills the process or the power.

Read store.py first, which joins the two parts: a log of the last transactions (segments.py its files, records.py what
stands in them, recent.py what they say), and SQLite tables for what has lasted longer (base.py,
simulator/storage/tables.py). recovery.py brings a log to the tables that a crash has left.

    sqlite3 a.sqlite "select * from waiting"

tells all of a node that has stopped, and of one that runs what has been there for some time. `mqproto store backup`
copies either. `a.life` beside it tells a store that was put back (witnesses/).

While a store is open, `NAME-lock` beside it is locked: a second node is refused at once, and `sqlite3` may look on.
The lock is the operating system's, so it goes with the process, however that ends. Every error is a `StoreError` of one
line that says what to do. care/ has what an operator asks for: what is hurt, copies, a repair, what was moved.
"""

from mqproto.simulator.storage.store import LIMITS, Limits, Store

__all__ = ["LIMITS", "Limits", "Store"]
