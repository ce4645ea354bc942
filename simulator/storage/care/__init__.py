"""What an operator does with the store of a node that does not run: see what is whole in it, and keep that.

salvage.py reads all that can be read, whatever is hurt; repair.py writes a store of it and sets aside the old one.
"""

from simulator.storage.care.repair import Repaired, repair
from simulator.storage.care.salvage import Salvage, salvaged

__all__ = ["Repaired", "Salvage", "repair", "salvaged"]
