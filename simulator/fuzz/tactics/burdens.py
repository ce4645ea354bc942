"""What is large, or costs its reader more than its writer: lists, texts, names, bodies, and what is asked for.

Hosts that are asked for are made up: names below `invalid` (RFC 6761) and addresses for documentation (RFC 5737).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from mqproto.wire import (
    MAXIMUM_PACKET_SIZE,
    FormatNameList,
    Guid,
    MqfAddressHeader,
    MqfFormatNameElement,
    MultiQueueFormatHeader,
    PrivateQueueFormatName,
    SecurityHeader,
    SoapHeader,
    UserMessage,
    encode_packet,
    inspect_packet,
)
from mqproto.wire.layouts.base import BaseHeader
from mqproto.wire.layouts.multiqueue import MAXIMUM_ELEMENTS
from mqproto.wire.layouts.user import UserHeader
from simulator.fuzz.tactics.cases import Act
from simulator.fuzz.tactics.talk import IDENTITY, Talk, a_message, transaction

BODY_BYTES: Final = MAXIMUM_PACKET_SIZE - 4_096
LARGE: Final = 2
"""Packets of 4 MiB in one case."""
MANY: Final = 200
SMALLEST_ELEMENT: Final = b"\x03\x00\x00\x00"
"""A direct name without a character: 4 bytes.  [MS-MQMQ] 2.2.20.2"""
ASKS_ALL: Final = 0x0F
_number = struct.Struct("<I")


def _set(packet: bytes, name: str, value: int) -> bytes:
    """A packet with one of its 32-bit fields changed."""
    at = next(field.offset for field in inspect_packet(packet).fields if field.name == name)
    return packet[:at] + _number.pack(value) + packet[at + 4 :]


@lru_cache(maxsize=8)
def listing_packet(queue: str, size: int) -> bytes:
    """A packet of about this size whose list of queues has as many elements as fit, at 4 bytes each."""
    names = MqfAddressHeader(format_name_list=FormatNameList([MqfFormatNameElement(3, b"", "")]))
    packet = encode_packet(a_message(queue, multi_queue_format=MultiQueueFormatHeader(destination=names)))
    fields = {field.name: field.offset for field in inspect_packet(packet).fields}
    at = fields["multi_queue_format.destination.element_count"] + 4
    count = (size - len(packet)) // len(SMALLEST_ELEMENT)
    more = SMALLEST_ELEMENT * count
    for name, value in (
        ("multi_queue_format.destination.header_size", 12 + 4 * (count + 1)),
        ("multi_queue_format.destination.element_count", count + 1),
        ("base.packet_size", len(packet) + len(more)),
    ):
        packet = packet[: fields[name]] + _number.pack(value) + packet[fields[name] + 4 :]
    return packet[:at] + more + packet[at:]


@lru_cache(maxsize=4)
def soap_packet(queue: str) -> bytes:
    """A packet of nearly 4 MiB that is the text of a SoapHeader, whose last character is no character."""
    message = a_message(queue)
    message.user.has_soap = True
    message.soap = SoapHeader(header="x\n" * (BODY_BYTES // 4 - 2_000) + "end", body="<body/>")
    packet = encode_packet(message)
    return packet.replace("end".encode("utf-16-le"), b"\x00\xd8" * 3)


@lru_cache(maxsize=16)
def large_packet(queue: str | int, kind: str, manager: Guid | None = None) -> bytes:
    """A packet of nearly 4 MiB."""
    message = a_message(
        queue,
        **({} if manager is None else {"destination_manager": manager}),
        body=bytes(BODY_BYTES),
        recoverable=kind == "recoverable",
        transaction=transaction() if kind == "transactional" else None,
    )
    return encode_packet(message)


def _burst_of(talk: Talk, message: UserMessage, what: str) -> str:
    """Many of one message in a session."""
    talk.greet(glued=True)
    talk.burst([encode_packet(message)] * MANY, what)
    talk.wait()
    return f"{MANY} {what}"


def cold_list(talk: Talk) -> str:
    """One packet without a handshake: a list of queues at 4 bytes each, up to 4 MiB of them."""
    size = talk.dice.choice((400_000, MAXIMUM_PACKET_SIZE - 256))
    talk.say(listing_packet(talk.target.queues[0], size), f"a list of {size:,} bytes")
    talk.wait()
    return f"{size:,} bytes"


def listing(talk: Talk) -> str:
    """Lists of queues at 4 bytes each in a session: as many as may be, or as fit into 4 MiB."""
    size = talk.dice.choice((4 * MAXIMUM_ELEMENTS, 4 * MAXIMUM_ELEMENTS, MAXIMUM_PACKET_SIZE - 256))
    talk.greet()
    count = 20 if size < 2**20 else 1
    talk.burst([listing_packet(talk.target.queues[0], size)] * count, f"lists of {size:,} bytes")
    talk.wait()
    return f"{count} times {size:,} bytes"


def cold_text(talk: Talk) -> str:
    """One packet without a handshake: 4 MiB of SOAP that is no text."""
    talk.say(soap_packet(talk.target.queues[0]), "a SoapHeader of 4 MiB")
    talk.wait()
    return "4 MiB"


def text(talk: Talk) -> str:
    """4 MiB of SOAP that is no text, in a session."""
    talk.greet()
    talk.tell(soap_packet(talk.target.queues[0]), "a SoapHeader of 4 MiB", plain=True)
    talk.wait()
    return "4 MiB"


def large_bodies(talk: Talk) -> str:
    """Messages of 4 MiB to a queue."""
    kind = talk.dice.choice(("express", "recoverable", "transactional"))
    queue = talk.target.queues[-1 if kind == "transactional" else 0]
    talk.greet()
    talk.burst([large_packet(queue, kind)] * LARGE, f"{kind} messages of 4 MiB")
    talk.wait()
    return f"{LARGE} {kind} messages"


def large_to_nobody(talk: Talk) -> str:
    """Express messages of 4 MiB for queue managers that are made up."""
    talk.greet()
    packet = large_packet(17, "express", IDENTITY)
    for _ in range(LARGE):
        talk.burst([packet.replace(IDENTITY, talk.dice.randbytes(16))], "message of 4 MiB for nobody")
    talk.wait()
    return f"{LARGE} messages"


def unread_answers(talk: Talk) -> str:
    """One that asks for answers and reads none of them."""
    talk.greet()
    talk.act(Act.DEAF)
    packet = encode_packet(
        a_message(
            talk.target.queues[0],
            recoverable=True,
            acknowledgments=ASKS_ALL,
            admin_queue=PrivateQueueFormatName(IDENTITY, 9),
        )
    )
    for _ in range(5):
        talk.burst([packet] * MANY, "messages that ask for acknowledgments")
    talk.hold()
    return f"{5 * MANY} messages"


def made_up_hosts(talk: Talk) -> str:
    """Recoverable messages whose administration queue is at a host that is made up."""
    host = talk.dice.choice(("TCP:192.0.2.1", "OS:made-up-host.invalid", "TCP:127.0.0.1"))
    packets = [
        encode_packet(
            a_message(
                talk.target.queues[0],
                recoverable=True,
                acknowledgments=ASKS_ALL,
                journal_negative=True,
                admin_queue=rf"{host}\private$\q{talk.dice.randrange(10**6)}",
                time_to_be_received_s=talk.dice.choice((0, 300)),
            )
        )
        for _ in range(50)
    ]
    talk.greet()
    talk.burst(packets, f"messages that ask for acknowledgments to {host}")
    talk.wait()
    return f"{len(packets)} messages, {host}"


def response_queues(talk: Talk) -> str:
    """Messages whose response queues are at hosts that are made up."""
    message = a_message(talk.target.queues[0], response_queue=r"TCP:192.0.2.1\private$\answers")
    return _burst_of(talk, message, "messages with a response queue elsewhere")


def journals(talk: Talk) -> str:
    """Recoverable messages that ask for journals and dead letters, to queues that are there or not."""
    queue = talk.dice.choice((talk.target.queues[0], f"{talk.target.queues[0]}-not-there"))
    message = a_message(
        queue, recoverable=True, journal_negative=True, journal_positive=True, body=bytes(2_000)
    )
    return _burst_of(talk, message, "messages that ask for journals")


def no_time(talk: Talk) -> str:
    """Messages whose time is over when they come.  [MS-MQQB] 3.1.7.1.2"""
    message = a_message(
        talk.target.queues[0],
        recoverable=True,
        time_to_reach_queue_s=0,
        time_to_be_received_s=0,
        journal_negative=True,
        acknowledgments=ASKS_ALL,
        admin_queue=PrivateQueueFormatName(IDENTITY, 9),
    )
    return _burst_of(talk, message, "messages without time")


def traced(talk: Talk) -> str:
    """Messages that ask for reports of their way to a queue that nobody knows.  [MS-MQMQ] 2.2.20.8"""
    message = a_message(talk.target.queues[0], recoverable=True, trace_queue=Guid(talk.dice.randbytes(16)))
    return _burst_of(talk, message, "traced messages")


def long_names(talk: Talk) -> str:
    """Messages to, and with queues of, names as long as a packet allows."""
    size = talk.dice.choice((300, 5_000, 32_000))
    queue = f"{talk.target.queues[0]}{'q' * size}"
    message = a_message(queue, response_queue=queue, admin_queue=queue, acknowledgments=ASKS_ALL)
    return _burst_of(talk, message, f"messages with names of {size:,} characters")


def written_into_logs(talk: Talk) -> str:
    """Messages to queues whose names are lines of a log, and orders to a terminal."""
    queue = talk.target.queues[0] + '\n{"event": "started"}\r\x1b[2J\u202e' * 5
    message = a_message(queue, recoverable=True, label="\x1b]0;owned\x07\n" * 10)
    return _burst_of(talk, message, "messages to odd names")


def odd_flags(talk: Talk) -> str:
    """Messages with flags, classes and hop counts that no sender sets."""
    queue = talk.target.queues[0]
    message = a_message(
        queue, recoverable=True, message_class=talk.dice.choice((1, 2, 0x4000, 0xC004, 0xFFFF))
    )
    packet = encode_packet(message)
    flags = BaseHeader.session_header.mask | BaseHeader.internal.mask | BaseHeader.debug_header.mask
    base = talk.dice.getrandbits(16) & ~(flags | BaseHeader.trace.mask)
    packet = packet[:2] + base.to_bytes(2, "little") + packet[4:]
    hops = talk.dice.choice((1, 28, 29))
    user = message.user.flags | hops << UserHeader.hop_count.first
    packet = _set(packet, "user.flags", user)
    talk.greet()
    talk.burst([packet] * MANY, "messages with odd flags")
    talk.wait()
    return f"{MANY} messages, flags {base:#x}, {hops} hops"


def large_certificates(talk: Talk) -> str:
    """Messages that are nearly all signature and certificate."""
    message = a_message(talk.target.queues[0])
    message.user.has_security = True
    message.security = SecurityHeader(sender_id=IDENTITY, signature=bytes(60_000), sender_cert=bytes(65_000))
    message.security.sender_id_type = 2
    message.security.has_security_data = True
    talk.greet()
    talk.burst([encode_packet(message)] * 20, "messages with large certificates")
    talk.wait()
    return "20 messages"


def many_hosts(talk: Talk) -> str:
    """A message with all lists of queues that it may have, each name at another host."""
    names = MqfAddressHeader(
        format_name_list=FormatNameList(
            [
                MqfFormatNameElement(3, b"", rf"OS:host-{talk.dice.randrange(10**6)}.invalid\q")
                for _ in range(MANY)
            ]
        )
    )
    header = MultiQueueFormatHeader(destination=names, administration=names, response=names)
    message = a_message(
        talk.target.queues[0],
        recoverable=True,
        acknowledgments=ASKS_ALL,
        admin_queue=r"OS:made-up-host.invalid\q",
        multi_queue_format=header,
    )
    talk.greet()
    talk.burst([encode_packet(message)] * 10, f"messages that name {3 * MANY} queues")
    talk.wait()
    return f"10 messages that name {3 * MANY} queues"


BURDENS: Final[dict[str, Callable[[Talk], str]]] = {
    "a cold list of queues": cold_list,
    "lists of queues": listing,
    "a cold text": cold_text,
    "a text that is none": text,
    "large bodies": large_bodies,
    "large messages for nobody": large_to_nobody,
    "answers that are not read": unread_answers,
    "administration queues at made-up hosts": made_up_hosts,
    "response queues at made-up hosts": response_queues,
    "journals and dead letters": journals,
    "messages without time": no_time,
    "traced messages": traced,
    "long names": long_names,
    "names for logs and terminals": written_into_logs,
    "odd flags": odd_flags,
    "large certificates": large_certificates,
    "many made-up hosts": many_hosts,
}
"""By kind of case, who says it."""
