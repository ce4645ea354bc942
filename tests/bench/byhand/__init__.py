"""UserMessages read and written by hand with `struct`: the yardstick of the generated codec.

This is what a careful engineer would write who has only this packet to care for: the same records, every check of the
layouts, each section bounded by the end of the packet, reserved bits kept, and the packet that is common first. Records
that every packet has are made without their `__init__`, as the generated codec makes them: there is no quicker way, so
the ratio to this code says what generating costs, not what objects cost. Only the MultiQueueFormatHeader, which is rare
and holds lists within lists, is left to construct.

tests/bench/test_byhand.py holds this code to the codec on valid and on broken packets. Nobody should want it
instead: every offset and every rule is written twice, and it finds no words for a refusal.
"""

from tests.bench.byhand.reading import parse
from tests.bench.byhand.writing import build

__all__ = ["build", "parse"]
