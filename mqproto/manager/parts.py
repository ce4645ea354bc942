"""The parts of one queue manager, for tests and worlds, which look at all of them."""

from __future__ import annotations

from typing import NamedTuple

from mqproto.manager.arriving.arrivals import Arrivals
from mqproto.manager.expiration import Expiration
from mqproto.manager.identifiers import Histories
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.manager.outcomes import Outcomes
from mqproto.manager.sending import Sending
from mqproto.neighbours.blocks import Blocks
from mqproto.neighbours.met import Met
from mqproto.neighbours.neighbours import Neighbours
from mqproto.routing import Routes
from mqproto.transfer.doubts import Doubts
from mqproto.transfer.spellings import IncomingSequences
from mqproto.turn.desk import Desk


class Parts(NamedTuple):
    """The parts that `QueueManager.inspect` returns. Looking changes nothing; changing one breaks the queue manager.

    Worlds do both: they check invariants, and play queue managers that misbehave. For that some parts have seams:
    attributes that hold a function, which a test can replace.

    neighbours: with the seams `new_session`, `receive` and `acknowledge`.
    outbound: with the seams `acknowledge` and `sequence_to`.
    arrivals: with the seam `forward`.
    """

    desk: Desk
    neighbours: Neighbours
    outbound: Outbound
    queues: LocalQueues
    incoming: IncomingSequences
    histories: Histories
    arrivals: Arrivals
    outcomes: Outcomes
    sending: Sending
    expiration: Expiration
    doubts: Doubts
    blocks: Blocks
    met: Met
    routes: Routes
