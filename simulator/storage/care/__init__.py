"""What an operator does with the store of a node: see what is whole in it, copy it, and keep what is whole.

salvage.py reads all that can be read at one moment, whatever is hurt and whether the node runs or not; backup.py copies
that, export.py has its messages as text; repair.py writes a store of it and sets aside the old one.
"""

from simulator.storage.care.backup import BackUp, back_up
from simulator.storage.care.repair import Repaired, repair
from simulator.storage.care.salvage import Salvage, salvaged

__all__ = ["BackUp", "Repaired", "Salvage", "back_up", "repair", "salvaged"]
