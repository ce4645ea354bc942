"""What an operator does with the store of a node: see what is whole in it, copy it, keep what is whole, adopt it.

Read salvage.py first, which reads all that can be read at one moment, whatever is damaged and whether the node runs or
not. It uses hurtsegment.py for a log, reading.py for the tables, and header.py for tables that SQLite does not open.
backup.py copies the moment, export.py has its messages as text; repair.py writes a store from it and sets aside the old
one. adopt.py is for a store that was copied or moved to another place.
"""

from mqproto.simulator.storage.care.adopt import adopt_moved, set_aside_copied
from mqproto.simulator.storage.care.backup import BackUp, back_up
from mqproto.simulator.storage.care.repair import Repaired, repair
from mqproto.simulator.storage.care.salvage import Salvage, salvaged

__all__ = [
    "BackUp",
    "Repaired",
    "Salvage",
    "adopt_moved",
    "back_up",
    "repair",
    "salvaged",
    "set_aside_copied",
]
