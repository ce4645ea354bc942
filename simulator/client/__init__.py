"""An application's end of the connection to a node on its machine.

client.py is what applications use, as in its example. exchange.py has requests and answers over one connection after
another, journal.py what outlives the process, submission.py a known amount that is sent or received in as many starts
as it takes, imported.py what was exported from a store. simulator/node/control.py is the language that both ends speak.
"""

from simulator.client.client import Client, DraftOptions, Reject, Taken, connect, connect_to
from simulator.client.exchange import NodeUnreachable
from simulator.node.control import InDoubt, RolledBack
from simulator.node.received import MessageId, ReceivedMessage

__all__ = [
    "Client",
    "DraftOptions",
    "InDoubt",
    "MessageId",
    "NodeUnreachable",
    "ReceivedMessage",
    "Reject",
    "RolledBack",
    "Taken",
    "connect",
    "connect_to",
]
