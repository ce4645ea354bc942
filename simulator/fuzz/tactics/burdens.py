"""Tactics that send a lot, or that cost the reader more than the writer: lists, texts, names, bodies and requests.

The requested hosts are made up: names below `invalid` (RFC 6761) and addresses for documentation (RFC 5737).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

from mqproto.simulator.fuzz.tactics.cases import Act
from mqproto.simulator.fuzz.tactics.packets import (
    ASKS_ALL,
    IDENTITY,
    a_message,
    direct_names,
    secured,
    transaction,
    with_soap,
    with_values,
)
from mqproto.simulator.fuzz.tactics.talk import Tactic, Talk, described
from mqproto.wire import (
    MAXIMUM_PACKET_SIZE,
    MultiQueueFormatHeader,
    PrivateQueueFormatName,
    SecurityHeader,
    SoapHeader,
    encode_packet,
    inspect_packet,
)
from mqproto.wire.layouts.base import BaseHeader
from mqproto.wire.layouts.multiqueue import MAXIMUM_ELEMENTS
from mqproto.wire.layouts.user import UserHeader

BODY_BYTES: Final = MAXIMUM_PACKET_SIZE - 4_096
LARGE: Final = 2
"""The number of packets of 4 MiB in one case."""
MANY: Final = 200
SMALLEST_ELEMENT: Final = b"\x03\x00\x00\x00"
"""A direct name without any characters, in encoded form.  [MS-MQMQ] 2.2.20.2"""
TO_US: Final = PrivateQueueFormatName(IDENTITY, 9)


@lru_cache(maxsize=8)
def _listing(queue: str, size: int) -> bytes:
    """Return a packet of about this size, whose list of queues has as many 4-byte elements as fit."""
    header = MultiQueueFormatHeader(destination=direct_names(""))
    packet = encode_packet(a_message(queue, multi_queue_format=header))
    count = (size - len(packet)) // len(SMALLEST_ELEMENT)
    more = SMALLEST_ELEMENT * count
    packet = with_values(
        packet,
        {
            "multi_queue_format.destination.header_size": 12 + 4 * (count + 1),
            "multi_queue_format.destination.element_count": count + 1,
            "base.packet_size": len(packet) + len(more),
        },
    )
    fields = inspect_packet(encode_packet(a_message(queue, multi_queue_format=header))).fields
    at = next(each.offset for each in fields if each.name.endswith("destination.element_count")) + 4
    return packet[:at] + more + packet[at:]


@lru_cache(maxsize=4)
def _no_text(queue: str) -> bytes:
    """Return a packet of nearly 4 MiB, most of which is the text of a SoapHeader that ends in invalid UTF-16."""
    soap = SoapHeader(header="x\n" * (BODY_BYTES // 4 - 2_000) + "end", body="<body/>")
    packet = encode_packet(with_soap(a_message(queue), soap))
    return packet.replace("end".encode("utf-16-le"), b"\x00\xd8" * 3)


@lru_cache(maxsize=16)
def _large(queue: str | int, kind: str) -> bytes:
    """Return a packet of nearly 4 MiB. If the queue is a number, the packet is for the queue manager IDENTITY."""
    message = a_message(
        queue,
        destination_manager=IDENTITY,
        body=bytes(BODY_BYTES),
        recoverable=kind == "recoverable",
        transaction=transaction() if kind == "transactional" else None,
    )
    return encode_packet(message)


@lru_cache(maxsize=4)
def nearly_whole(queue: str) -> tuple[bytes, bytes]:
    """Return a packet of nearly 4 MiB that lacks its last 100 bytes.

    It is in two parts: the headers, and the body without these bytes. Only the first part contains marks.
    """
    packet = _large(queue, "express")
    return packet[:512], packet[512:-100]


def _cold_list(talk: Talk) -> str:
    """One packet without a handshake: a list of 4-byte queue names, up to 4 MiB in all."""
    size = talk.dice.choice((400_000, MAXIMUM_PACKET_SIZE - 256))
    talk.say(_listing(talk.queue, size), f"a list of {size:,} bytes")
    talk.wait()
    return f"{size:,} bytes"


def _lists(talk: Talk) -> str:
    """In a session, lists of 4-byte queue names: as many as are allowed, or as fit into 4 MiB."""
    size = talk.dice.choice((4 * MAXIMUM_ELEMENTS, 4 * MAXIMUM_ELEMENTS, MAXIMUM_PACKET_SIZE - 256))
    packets = [_listing(talk.queue, size)] * (20 if size < 2**20 else 1)
    return talk.flood(packets, f"lists of {size:,} bytes")


def _cold_text(talk: Talk) -> str:
    """One packet without a handshake: 4 MiB of SOAP that is not valid text."""
    talk.say(_no_text(talk.queue), "a SoapHeader of 4 MiB")
    talk.wait()
    return "4 MiB"


def _large_bodies(talk: Talk) -> str:
    """Messages of 4 MiB to a queue."""
    kind = talk.dice.choice(("express", "recoverable", "transactional"))
    queue = talk.target.queues[-1 if kind == "transactional" else 0]
    return talk.flood([_large(queue, kind)] * LARGE, f"{kind} messages of 4 MiB")


def _large_to_nobody(talk: Talk) -> str:
    """Express messages of 4 MiB for queue managers that do not exist."""
    packet = _large(17, "express")
    packets = [packet.replace(IDENTITY, talk.stranger()) for _ in range(LARGE)]
    return talk.flood(packets, "messages of 4 MiB for nobody")


def _unread_answers(talk: Talk) -> str:
    """Messages that ask for many answers, which are never read."""
    talk.greet()
    talk.act(Act.DEAF)
    message = a_message(talk.queue, recoverable=True, acknowledgments=ASKS_ALL, admin_queue=TO_US)
    for _ in range(5):
        talk.burst([encode_packet(message)] * MANY, "messages that ask for acknowledgments")
    talk.hold()
    return f"{5 * MANY} messages"


def _made_up_hosts(talk: Talk) -> str:
    """Recoverable messages whose administration queue is on a made-up host, or on the peer's own loopback address."""
    host = talk.dice.choice(("TCP:192.0.2.1", "OS:made-up-host.invalid", "TCP:127.0.0.1"))
    packets = []
    for _ in range(50):
        message = a_message(
            talk.queue,
            recoverable=True,
            acknowledgments=ASKS_ALL,
            journal_negative=True,
            admin_queue=rf"{host}\private$\q{talk.dice.randrange(10**6)}",
            time_to_be_received_s=talk.dice.choice((0, 300)),
        )
        packets.append(encode_packet(message))
    return talk.flood(packets, f"messages that ask for acknowledgments to {host}")


def _odd_flags(talk: Talk) -> str:
    """Messages with flags, classes and hop counts that no sender sets."""
    message_class = talk.dice.choice((1, 2, 0x4000, 0xC004, 0xFFFF))
    message = a_message(talk.queue, recoverable=True, message_class=message_class)
    flags = BaseHeader.session_header.mask | BaseHeader.internal.mask | BaseHeader.debug_header.mask
    base, hops = talk.dice.getrandbits(16) & ~(flags | BaseHeader.trace.mask), talk.dice.choice((1, 28, 29))
    user = message.user.flags | hops << UserHeader.hop_count.first
    packet = with_values(encode_packet(message), {"base.flags": base, "user.flags": user})
    return talk.flood([packet] * MANY, f"messages with flags {base:#x} and {hops} hops")


def _certificates(talk: Talk) -> str:
    """Messages that consist almost entirely of a signature and a certificate."""
    security = SecurityHeader(sender_id=IDENTITY, signature=bytes(60_000), sender_cert=bytes(65_000))
    packet = encode_packet(secured(a_message(talk.queue), security))
    return talk.flood([packet] * 20, "messages with large certificates")


def _many_hosts(talk: Talk) -> str:
    """A message with all the lists of queues that it may have, and each queue on a different host."""
    names = direct_names(*(rf"OS:host-{talk.dice.randrange(10**6)}.invalid\q" for _ in range(MANY)))
    message = a_message(
        talk.queue,
        recoverable=True,
        acknowledgments=ASKS_ALL,
        admin_queue=r"OS:made-up-host.invalid\q",
        multi_queue_format=MultiQueueFormatHeader(destination=names, administration=names, response=names),
    )
    return talk.flood([encode_packet(message)] * 10, f"messages that name {3 * MANY} queues")


def _asking(talk: Talk, changes: Callable[[Talk], dict[str, Any]]) -> str:
    """Send many copies of one recoverable message with these changes."""
    changed = {"queue": talk.queue, "recoverable": True, **changes(talk)}
    message = a_message(changed.pop("queue"), **changed)
    return talk.flood([encode_packet(message)] * MANY, "messages")


def _with_long_names(talk: Talk) -> dict[str, Any]:
    queue = talk.queue + "q" * talk.dice.choice((300, 5_000, 32_000))
    return {"queue": queue, "response_queue": queue, "admin_queue": queue, "acknowledgments": ASKS_ALL}


def _asks(does: str, changes: Callable[[Talk], dict[str, Any]]) -> Tactic:
    return described(does, partial(_asking, changes=changes))


BURDENS: Final[dict[str, Tactic]] = {
    "a cold list of queues": _cold_list,
    "lists of queues": _lists,
    "a cold text": _cold_text,
    "a text that is none": described(
        "4 MiB of SOAP that is not text, in a session.",
        lambda talk: talk.flood([_no_text(talk.queue)], "SoapHeader of 4 MiB"),
    ),
    "large bodies": _large_bodies,
    "large messages for nobody": _large_to_nobody,
    "answers that are not read": _unread_answers,
    "administration queues at made-up hosts": _made_up_hosts,
    "response queues at made-up hosts": _asks(
        "Messages whose response queues are at hosts that are made up.",
        lambda talk: {"response_queue": r"TCP:192.0.2.1\private$\answers"},
    ),
    "journals and dead letters": _asks(
        "Recoverable messages that ask for journals and dead letters, to queues that are there or not.",
        lambda talk: {
            "queue": talk.dice.choice((talk.queue, f"{talk.queue}-not-there")),
            "journal_negative": True,
            "journal_positive": True,
            "body": bytes(2_000),
        },
    ),
    "messages without time": _asks(
        "Messages whose time is over when they come.  [MS-MQQB] 3.1.7.1.2",
        lambda talk: {
            "time_to_reach_queue_s": 0,
            "time_to_be_received_s": 0,
            "journal_negative": True,
            "acknowledgments": ASKS_ALL,
            "admin_queue": TO_US,
        },
    ),
    "traced messages": _asks(
        "Messages that ask for reports of their way to a queue that nobody knows.  [MS-MQMQ] 2.2.20.8",
        lambda talk: {"trace_queue": talk.stranger()},
    ),
    "long names": _asks(
        "Messages to, and with queues of, names as long as a packet allows.", _with_long_names
    ),
    "names for logs and terminals": _asks(
        "Messages to queues whose names are lines of a log, and orders to a terminal.",
        lambda talk: {
            "queue": talk.queue + '\n{"event": "started"}\r\x1b[2J\u202e' * 5,
            "label": "\x1b]0;owned\x07\n" * 10,
        },
    ),
    "odd flags": _odd_flags,
    "large certificates": _certificates,
    "many made-up hosts": _many_hosts,
}
"""The tactics, keyed by the kind of case."""
