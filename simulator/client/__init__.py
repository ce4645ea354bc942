"""An application's end of the connection to a node on its machine.

README.md is for those who write applications. client.py is what those of trio use, aio.py those of asyncio, blocking.py
those of plain threads; portal.py carries from these to a thread with trio. exchange.py has requests and answers over
one connection after another, journal.py what outlives the process, submission.py a known amount that is sent or
received in as many starts as it takes, imported.py what was exported from a store. simulator/node/control.py is the
language that both ends speak.
"""

from mqproto.base.errors import UsageError
from mqproto.simulator.client.client import Client, DraftOptions, Reject, Taken, connect, connect_to
from mqproto.simulator.client.envelope import Envelope
from mqproto.simulator.client.exchange import NodeUnreachable
from mqproto.simulator.node.control import InDoubt, RolledBack
from mqproto.simulator.node.received import MessageId, ReceivedMessage

__all__ = [
    "Client",
    "DraftOptions",
    "Envelope",
    "InDoubt",
    "MessageId",
    "NodeUnreachable",
    "ReceivedMessage",
    "Reject",
    "RolledBack",
    "Taken",
    "UsageError",
    "connect",
    "connect_to",
]
