"""Shows captures: packets in words, as rows and in diagrams, the paths of messages, and faults.

`Analyst` turns packets into sights, in order and in bounded memory; everything else here shows sights.
"""

from mqproto.captures.decode.analyst import Analyst
from mqproto.captures.decode.findings import CODES, Finding, Severity
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.row import PacketRow, row_of
from mqproto.captures.decode.selection import Selection
from mqproto.captures.decode.sight import Acknowledged, Kind, Sight
from mqproto.captures.decode.views.follow import Follower, History
from mqproto.captures.decode.views.ladder import Ladder
from mqproto.captures.decode.views.line import LineWriter
from mqproto.captures.decode.views.summary import Summary
from mqproto.captures.decode.views.svg import svg

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
