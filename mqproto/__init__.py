"""The binary protocol of Microsoft Message Queuing, [MS-MQQB], without sockets, a clock or a disk.

`QueueManager` is the core of a node: feed it events, and `take` returns one `Batch` of things to do. `carry_out` has
your `Hands` do them, in an order that neither loses nor repeats a message. `mqproto.wire` has the packets,
`mqproto.formatname` has the names of queues, and `mqproto.testing` has Hypothesis strategies for both.

Each name is imported when it is first used, so a program that needs only the wire format does not load the core.
"""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    __version__: str

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
else:
    # The same names again: type checkers understand only the imports above. A test keeps the two equal.
    _HOMES = {
        "base.configuration": ("Settings",),
        "base.errors": ("FormatNameError", "MqprotoError", "UsageError", "WireFormatError"),
        "base.moment": ("Moment",),
        "base.timers": ("Timers",),
        "formatname": ("parse_format_name", "parse_path_name", "parse_queue_name"),
        "manager.carry": ("Hands", "carry_out"),
        "manager.queuemanager": ("QueueManager",),
        "messages.destinations": ("Destination",),
        "messages.drafts": ("Draft",),
        "queues.localqueue": ("QueueDeclaration",),
        "routing": ("NextHop", "Peer", "Routes"),
        "session": ("Session",),
        "turn.effects": ("Batch", "StoredState", "Writes"),
        "wire": ("PacketBuffer", "decode_packet", "encode_packet", "inspect_packet"),
    }

    def __getattr__(name):
        """Import a name on first use (PEP 562)."""
        if name == "__version__":
            from importlib.metadata import version

            return version(__name__)
        for home, names in _HOMES.items():
            if name in names:
                from importlib import import_module

                module = import_module(f"{__name__}.{home}")
                globals().update((each, getattr(module, each)) for each in names)
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
