"""Operators' tools for a node's store, which check, copy, repair or adopt it.

Read salvage.py first, which reads everything readable as of one moment, even from damaged stores and running nodes. It
uses hurtsegment.py for a log, reading.py for the tables, and header.py for tables that SQLite does not open. backup.py
copies that data, and export.py writes its messages as text. repair.py makes a new store from the data, and sets the old
store aside. adopt.py is for a store that was copied or moved to another place.
"""

from mqproto.simulator.storage.care.adopt import accept_lost_ids, adopt_moved, set_aside_copied
from mqproto.simulator.storage.care.backup import BackUp, back_up
from mqproto.simulator.storage.care.repair import Repaired, repair
from mqproto.simulator.storage.care.salvage import Salvage, salvaged

__all__ = [
    "BackUp",
    "Repaired",
    "Salvage",
    "accept_lost_ids",
    "adopt_moved",
    "back_up",
    "repair",
    "salvaged",
    "set_aside_copied",
]
