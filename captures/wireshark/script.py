"""Assembles the dissector.

Its parts are values, fields, constants, reading.lua, layouts, bodies.lua, order.lua and dissector.lua.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from mqproto.bodies.automation import BY_NUMBER
from mqproto.bodies.objects import BINARY_FORMATTER
from mqproto.bodies.records import GADGETS
from mqproto.bodies.values import DEPTH_LIMIT, VALUES_LIMIT
from mqproto.captures.decode.security.words import KEY_BITS, SIZED_CIPHERS
from mqproto.captures.decode.sight import (
    TLS_CONTENTS,
    TLS_HANDSHAKE,
    TLS_HEAD,
    TLS_HELLOS,
    TLS_MAJOR,
    TLS_MINOR,
    TLS_RECORD_LIMIT_BYTES,
)
from mqproto.captures.net.streams import MSMQ_PORT
from mqproto.captures.packets import PING_PORT
from mqproto.captures.wireshark.expressions import quoted, quoted_bytes
from mqproto.captures.wireshark.fields import PREFIX, Field, bit_table, fields_of, meanings_table, table_name
from mqproto.captures.wireshark.layouts import Translated, Translator
from mqproto.captures.wireshark.meanings import MEANINGS
from mqproto.wire.classes import MessageClass
from mqproto.wire.layouts.acknowledgment import BODY_SIZE, final_ack_body, order_ack_body
from mqproto.wire.layouts.base import INFINITE, base_header
from mqproto.wire.layouts.internal import internal_header
from mqproto.wire.layouts.ping import ping_packet
from mqproto.wire.layouts.session import session_header
from mqproto.wire.layouts.sid import REVISION, SUB_AUTHORITY_LIMIT, sid
from mqproto.wire.layouts.user import PRIVATE_ON_DESTINATION, PRIVATE_ON_SOURCE, user_header
from mqproto.wire.messages import FIRST_FINAL_CLASS, LABEL, ORDER_QUEUE, ORDER_QUEUE_PATH
from mqproto.wire.packets import INTERNAL_PACKETS, srmp_message_packet, user_message_packet
from mqproto.wire.schema.parts import wide
from mqproto.wire.schema.record import Record

HEADING: Final = f"""\
-- A dissector of Microsoft Message Queuing's binary protocol for Wireshark and tshark, 3.6 or newer.
-- [MS-MQQB], [MS-MQMQ]. TCP port {MSMQ_PORT} and any stream that looks like it, UDP port {PING_PORT}; fields msmq.*
--
-- Written by `mqproto wireshark` from the layouts of mqproto/wire: change those, not this.
-- To use it:  tshark -X lua_script:msmq.lua -r FILE
-- or copy it to the folder that Wireshark shows in Help, About, Folders, Personal Lua Plugins.
"""

DECLARATIONS: Final = f"""\
local msmq = Proto("msmq", "Microsoft Message Queuing")
local ping = Proto("msmq_ping", "Microsoft Message Queuing Ping")
local order = Proto("msmq_order", "Microsoft Message Queuing, the order of segments")
local msmq_port, ping_port = "{MSMQ_PORT}", "{PING_PORT}"
msmq.prefs.tcp_ports = Pref.range("TCP ports", msmq_port, "Ports whose streams are read as MSMQ", 65535)
msmq.prefs.ping_ports = Pref.range("UDP ports", ping_port, "Ports whose datagrams are read as Pings", 65535)

local experts = {{
  malformed = ProtoExpert.new("msmq.malformed", "A rule is broken", expert.group.MALFORMED, expert.severity.ERROR),
  remark = ProtoExpert.new("msmq.remark", "Odd, but let pass", expert.group.PROTOCOL, expert.severity.NOTE),
  unexplained = ProtoExpert.new(
    "msmq.unexplained", "The body is not what its type says", expert.group.UNDECODED, expert.severity.NOTE
  ),
  headless = ProtoExpert.new(
    "msmq.headless", "No packet begins here, and none has to", expert.group.UNDECODED, expert.severity.NOTE
  ),
  cut = ProtoExpert.new("msmq.cut", "A part of it is not there", expert.group.UNDECODED, expert.severity.NOTE),
  encrypted = ProtoExpert.new(
    "msmq.encrypted", "The connection is encrypted", expert.group.UNDECODED, expert.severity.NOTE
  ),
  many = ProtoExpert.new(
    "msmq.many", "Too many fields to show them all; all of them were judged",
    expert.group.UNDECODED, expert.severity.WARN
  ),
}}
msmq.experts = experts
"""

OWN_FIELDS: Final = (
    Field(f"{PREFIX}unread", "bytes", "Unread", ("what no layout has, or what is after the fault",)),
    Field(f"{PREFIX}destination", "string", "Destination", ("the format name of DestinationQueue",)),
    Field(
        f"{PREFIX}content", "string", "Content", ("what the body says, if that is known; [MS-MQMQ] 2.2.12",)
    ),
    Field(
        f"{PREFIX}content.kind",
        "string",
        "Kind",
        ("xml, binary, VT_BSTR ...; bytes if it is not what its type says",),
    ),
    Field(
        f"{PREFIX}content.class",
        "string",
        "Class",
        ("of BinaryFormatter's root; the CLSID of a streamed object",),
    ),
    Field(f"{PREFIX}content.reason", "string", "Reason", ("why the body is shown as bytes",)),
    Field(
        f"{PREFIX}protection",
        "string",
        "Protection",
        ("what the message says about sender, signature and encryption; nothing of it is proved",),
    ),
    Field(f"{PREFIX}protection.sender_kind", "string", "SenderKind", ("SID or queue manager",)),
    Field(f"{PREFIX}protection.sender_id", "string", "SenderID", ("the SID, or the GUID",)),
    Field(f"{PREFIX}protection.signed", "string", "Signed", ("by which hash: SHA-512",)),
    Field(f"{PREFIX}protection.encrypted", "string", "Encrypted", ("with which cipher: AES-256, RC2-40",)),
    Field(f"{PREFIX}order_ack", "none", "OrderAck", (order_ack_body.layout.section,)),
    Field(f"{PREFIX}final_ack", "none", "FinalAck", (final_ack_body.layout.section,)),
)


def dissector() -> str:
    """Return the dissector as one Lua file.

    Raises:
        NotImplementedError: a layout of mqproto/wire has a part that captures/wireshark does not know.
    """
    translator = Translator()
    records: list[Record[Any]] = [user_message_packet, srmp_message_packet, *INTERNAL_PACKETS.values()]
    messages = [translator.record(record) for record in records]
    session = translator.record(session_header)
    ping = translator.record(ping_packet)
    bodies = {"order_ack": translator.record(order_ack_body), "final_ack": translator.record(final_ack_body)}
    fields = fields_of(
        [
            *((PREFIX, message) for message in messages),
            (f"{PREFIX}session.", session),
            (f"{PREFIX}ping.", ping),
            *((f"{PREFIX}{name}.", body) for name, body in bodies.items()),
        ]
    )
    fields |= {field.name: field for field in OWN_FIELDS}
    parts = (
        HEADING,
        DECLARATIONS,
        _values(),
        _fields(fields),
        _named_bits(translator),
        _resource("reading.lua"),
        "local layouts = {}\n",
        *(layout.source for layout in translator.translated),
        _known(bodies),
        _resource("bodies.lua"),
        _resource("order.lua"),
        _resource("dissector.lua"),
    )
    return "\n".join(parts)


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def _values() -> str:
    tables = (f"  {table_name(key)} = {meanings_table(names)},\n" for key, names in MEANINGS.items())
    return f"local values = {{\n{''.join(tables)}}}\n"


def _fields(fields: dict[str, Field]) -> str:
    """Return the Lua code for the fields, and for a table of each flag word's bits."""
    made = "".join(f"fields[{quoted(field.name)}] = {field.source}\n" for field in fields.values())
    words: dict[str, list[str]] = {}
    for field in fields.values():
        if field.mask:
            words.setdefault(field.name.rpartition(".")[0], []).append(quoted(field.name))
    parts = "".join(f"  [{quoted(word)}] = {{{', '.join(names)}}},\n" for word, names in words.items())
    return (
        f"local fields = {{}}\n{made}"
        "for _, field in pairs(fields) do msmq.fields[#msmq.fields + 1] = field end\n"
        f"local parts = {{\n{parts}}}\n"
    )


def _named_bits(translator: Translator) -> str:
    records = {layout.name: layout.record for layout in translator.translated if layout.record}
    tables = (f"  {name} = {bit_table(record)},\n" for name, record in records.items())
    return f"local named_bits = {{\n{''.join(tables)}}}\n"


def _known(bodies: dict[str, Translated]) -> str:
    """Return the constants and tables that dissector.lua needs in addition to the layouts."""
    numbers: dict[str, int] = {
        "head_size": base_header.sizeof(),
        "flags_at": base_header.offset_of("flags"),
        "packet_size_at": base_header.offset_of("packet_size"),
        "type_at": base_header.sizeof() + internal_header.offset_of("flags"),
        "user_flags_at": base_header.sizeof() + user_header.offset_of("flags"),
        "session_header_size": session_header.sizeof(),
        "order_ack_class": MessageClass.ORDER_ACK.value,
        "first_final_class": FIRST_FINAL_CLASS,
        "body_size": BODY_SIZE,
        "order_queue": ORDER_QUEUE,
        "infinite": INFINITE,
        "private_on_destination": PRIVATE_ON_DESTINATION,
        "private_on_source": PRIVATE_ON_SOURCE,
        "binary_formatter": BINARY_FORMATTER,
        "depth_limit": DEPTH_LIMIT,
        "values_limit": VALUES_LIMIT,
        "sequence_numbers": 2**32,
        "sid_revision": REVISION,
        "sub_authority_limit": SUB_AUTHORITY_LIMIT,
        "authority_at": sid.offset_of("authority_high"),
        "authority_low_at": sid.offset_of("authority_low"),
        "sid_head_size": sid.offset_of("sub_authorities"),
        "tls_head_size": TLS_HEAD.size,
        "tls_major": TLS_MAJOR,
        "tls_minor": TLS_MINOR,
        "tls_record_limit": TLS_RECORD_LIMIT_BYTES,
        "tls_handshake": TLS_HANDSHAKE,
    }
    texts = {"label": wide(LABEL), "order_queue_path": wide(ORDER_QUEUE_PATH.lower())}
    lines = [f"  {name} = {value},\n" for name, value in numbers.items()]
    lines += [f"  {name} = {quoted_bytes(value)},\n" for name, value in texts.items()]
    lines.append(f"  key_bits = {meanings_table({level: str(bits) for level, bits in KEY_BITS.items()})},\n")
    lines.append(f"  sized_ciphers = {{{', '.join(f'[{cipher}] = true' for cipher in SIZED_CIPHERS)}}},\n")
    kinds: dict[int, Record[Any]] = {**INTERNAL_PACKETS}
    packets = ", ".join(f"[{kind}] = layouts.{record.kind.__name__}" for kind, record in kinds.items())
    acknowledgments = ", ".join(f"{name} = layouts.{body.name}" for name, body in bodies.items())
    types = ", ".join(f"[{number}] = {quoted(variant.name)}" for number, variant in BY_NUMBER.items())
    lines += [f"  body_types = {{{types}}},\n", f"  gadgets = {{{', '.join(map(quoted, GADGETS))}}},\n"]
    lines += [f"  internal_packets = {{{packets}}},\n", f"  acknowledgments = {{{acknowledgments}}},\n"]
    for name, words in (("tls_contents", TLS_CONTENTS), ("tls_hellos", TLS_HELLOS)):
        lines.append(f"  {name} = {meanings_table(words)},\n")
    return f"local known = {{\n{''.join(lines)}}}\n"
