"""The application's end of the connection to a node on the same machine.

docs/how-to/client.md is for authors of applications. client.py is the client for trio, aio.py for asyncio, and
blocking.py for plain threads; portal.py carries calls from these two to a thread with trio. exchange.py has requests
and answers over successive connections, and journal.py has the state that outlives the process. submission.py sends or
receives a given number of messages, over several starts if necessary; imported.py sends messages exported from a store.
simulator/node/control.py is the protocol between the application and the node.
"""

from mqproto.base.errors import UsageError
from mqproto.simulator.client.client import Client, DraftOptions, Lease, Reject, Taken, connect, connect_to
from mqproto.simulator.client.envelope import Envelope
from mqproto.simulator.client.nodeline import NodeUnreachable
from mqproto.simulator.node.control import InDoubt, RolledBack
from mqproto.simulator.node.received import MessageId, ReceivedMessage

__all__ = [
    "Client",
    "DraftOptions",
    "Envelope",
    "InDoubt",
    "Lease",
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
