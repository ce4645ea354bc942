"""The binary protocol of Microsoft Message Queuing, [MS-MQQB]: no sockets, no clock, no disk.

`QueueManager` is the core of a node: it is fed what happened, and `take` gives back one `Batch` of what is to be done,
which `carry_out` has your `Hands` do, in the order that keeps the promise.
`mqproto.wire` has the packets, `mqproto.formatname` the names of queues, `mqproto.testing` strategies for both.
"""

from mqproto.base.configuration import Settings
from mqproto.base.errors import FormatNameError, MqprotoError, UsageError, WireFormatError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.formatname import parse_format_name, parse_path_name, parse_queue_name
from mqproto.manager.carry import Hands, carry_out
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import Draft
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import NextHop, Peer, Routes
from mqproto.session import Session
from mqproto.turn.effects import Batch, StoredState, Writes
from mqproto.wire import PacketBuffer, decode_packet, encode_packet, inspect_packet

__all__ = [
    "Batch",
    "Destination",
    "Draft",
    "FormatNameError",
    "Hands",
    "Moment",
    "MqprotoError",
    "NextHop",
    "PacketBuffer",
    "Peer",
    "QueueDeclaration",
    "QueueManager",
    "Routes",
    "Session",
    "Settings",
    "StoredState",
    "Timers",
    "UsageError",
    "WireFormatError",
    "Writes",
    "carry_out",
    "decode_packet",
    "encode_packet",
    "inspect_packet",
    "parse_format_name",
    "parse_path_name",
    "parse_queue_name",
]
