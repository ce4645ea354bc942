"""What a capture says: each packet in words, as a row, in a diagram; whole messages; and what is wrong.

`Analyst` turns packets into sights, in order and in bounded memory; everything else here shows sights.
"""

from captures.decode.analyst import Analyst
from captures.decode.findings import CODES, Finding, Severity
from captures.decode.names import Names
from captures.decode.row import PacketRow, row_of
from captures.decode.selection import Selection
from captures.decode.sight import Acknowledged, Kind, Sight
from captures.decode.views.follow import Follower, History
from captures.decode.views.ladder import Ladder
from captures.decode.views.line import LineWriter
from captures.decode.views.summary import Summary
from captures.decode.views.svg import svg

__all__ = [
    "CODES",
    "Acknowledged",
    "Analyst",
    "Finding",
    "Follower",
    "History",
    "Kind",
    "Ladder",
    "LineWriter",
    "Names",
    "PacketRow",
    "Selection",
    "Severity",
    "Sight",
    "Summary",
    "row_of",
    "svg",
]
