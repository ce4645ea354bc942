"""What an operator does with the store of a node that does not run: see what is whole in it, keep that, or adopt it.

salvage.py reads all that can be read, whatever is hurt; repair.py writes a store of it and sets aside the old one.
adopt.py is for a store that was copied or moved to another place.
"""

from simulator.storage.care.adopt import adopt_moved, set_aside_copied
from simulator.storage.care.repair import Repaired, repair
from simulator.storage.care.salvage import Salvage, salvaged

__all__ = ["Repaired", "Salvage", "adopt_moved", "repair", "salvaged", "set_aside_copied"]
