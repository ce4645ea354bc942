"""Shows packets as tables or as JSON, for `mqproto decode`.

The fields come from `inspect_packet`, so a broken packet is shown up to its fault, followed by the fault.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.base.foreign import quoted, shown
from mqproto.bodies import describe, read_body
from mqproto.captures.decode.security.keyring import Evidence, KeyRing
from mqproto.captures.decode.views.evidence import evidence_lines
from mqproto.captures.files.pasted import INPUT_LIMIT_BYTES, read_pasted
from mqproto.wire import (
    NULL_GUID,
    BaseHeader,
    Guid,
    Ping,
    TransactionHeader,
    UserHeader,
    UserMessage,
    acknowledgment_in,
    guid_text,
)
from mqproto.wire.classes import MessageClass
from mqproto.wire.layouts.acknowledgment import OrderAckBody
from mqproto.wire.lenient import Inspection, SeenField
from mqproto.wire.schema.record import Bit, Bits

SHOWN_BYTES: Final = 16
"""The number of bytes of a long field that the table shows; JSON has all of them."""
SHOWN_CONTENTS: Final = 600
"""The number of characters of a body's contents, as JSON, that the table shows; `--json` has all."""
SHOWN_CHARACTERS: Final = 124
"""The maximum number of characters of a queue's name that are shown.

Only a prank would use a longer name.
"""
FLAG_WORDS: Final = {
    "base.flags": BaseHeader,
    "user.flags": UserHeader,
    "transaction.flags": TransactionHeader,
    "flags": Ping,
}
PAYLOAD: Final = ("message_body", "extension_data", "unread", "trailing")
"""The fields with arbitrary content. They are not shown as GUIDs, even if they have sixteen bytes."""


def read_source(source: str) -> list[bytes]:
    """Return the bytes given to `mqproto decode` on the command line, in a file, or, with `-`, on stdin.

    pasted.py describes their forms.

    Raises:
        UsageError: the source is neither a file nor bytes.
    """
    if source == "-":
        return read_pasted(sys.stdin.buffer.read(INPUT_LIMIT_BYTES + 1), "stdin")
    path = Path(source)
    why = ""
    try:
        if path.is_file():
            with path.open("rb") as file:
                return read_pasted(file.read(INPUT_LIMIT_BYTES + 1), source)
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        why = f" ({getattr(error, 'strerror', None) or error})"
    try:
        found = read_pasted(source.encode("utf-8", "surrogateescape"), "the argument")
    except UsageError as error:
        if path.is_dir():
            raise UsageError(
                f"{quoted(source)} is a folder; name a file in it, or --tables for all of it"
            ) from None
        if "://" in source:
            raise UsageError(f"{quoted(source)} is a URI, which --tables reads") from None
        if not why and re.fullmatch(r"\S*\.\w{1,8}", source):
            raise UsageError(f"{quoted(source)}: there is no such file") from None
        raise UsageError(f"{quoted(source)} is neither a file{why} nor bytes: {error}") from None
    return found


def headline(inspection: Inspection, at: int = 0) -> str:
    """Return a headline for the packet, with the offset of its first byte if that is not 0."""
    where = f"byte {at:,}: " if at else ""
    wrong = "" if inspection.is_valid else ", not valid"
    return f"{where}{_kind(inspection)}, {_size(inspection):,} bytes{wrong}"


def _size(inspection: Inspection) -> int:
    return sum(field.size for field in inspection.fields)


def _kind(inspection: Inspection) -> str:
    packet = inspection.packet
    if packet is None:
        return "no packet" if len(inspection.fields) < 2 else "no whole packet"
    if not isinstance(packet, UserMessage):
        return type(packet).__name__
    try:
        acknowledgment = acknowledgment_in(packet)
    except WireFormatError:
        acknowledgment = None
    if acknowledgment is not None:
        return "OrderAck" if isinstance(acknowledgment, OrderAckBody) else "FinalAck"
    kind = (
        "transactional " if packet.transaction else "recoverable " if packet.user.recoverable else "express "
    )
    return f"{kind}UserMessage"


def evidence(inspection: Inspection, ring: KeyRing) -> Evidence | None:
    """Return what the keys prove about a packet; None if it is not a complete message."""
    return ring.evidence(inspection.packet) if isinstance(inspection.packet, UserMessage) else None


def as_table(inspection: Inspection, at: int = 0, evidence: Evidence | None = None) -> RenderableType:
    """Return every field with offset, size, value and bytes, then the faults and what the keys prove."""
    findings = [f"[red]{escape(str(finding))}[/red]" for finding in inspection.findings]
    contents = [
        escape(f"{name} {shown(json.dumps(what, ensure_ascii=False), SHOWN_CONTENTS)}")
        for name, what in _contents(inspection, evidence).items()
    ]
    if evidence is not None and isinstance(inspection.packet, UserMessage):
        contents += map(escape, evidence_lines(evidence, inspection.packet.properties.body_type))
        findings += (
            f"[red]{escape(finding.text)}  {escape(finding.section)}[/red]"
            for finding in evidence.findings(0)
        )
    return Group(f"[bold]{headline(inspection, at)}[/bold]", fields_table(inspection), *contents, *findings)


def _contents(inspection: Inspection, evidence: Evidence | None) -> dict[str, Any]:
    """Return the contents of the body and of the extension of a complete message.

    A body that could not be decrypted is left out.
    """
    packet = inspection.packet
    if not isinstance(packet, UserMessage):
        return {}
    properties = packet.properties
    if packet.security is not None and packet.security.body_encrypted:
        plain = None if evidence is None else evidence.plain
        if plain is None:
            return describe(read_body(b"", 0, properties.extension_data))
        return describe(read_body(plain, properties.body_type, properties.extension_data))
    return describe(read_body(properties.message_body, properties.body_type, properties.extension_data))


def fields_table(inspection: Inspection) -> Table:
    """Return a table of every field with its offset, size, value and bytes."""
    table = Table(box=None, pad_edge=False)
    for heading, justify in (
        ("byte", "right"),
        ("size", "right"),
        ("field", "left"),
        ("value", "left"),
        ("bytes", "left"),
    ):
        table.add_column(heading, justify="right" if justify == "right" else "left", overflow="fold")
    for field in inspection.fields:
        table.add_row(
            str(field.offset), str(field.size), escape(field.name), escape(_words(field)), _hex(field.raw)
        )
    return table


def as_json(inspection: Inspection, at: int = 0, evidence: Evidence | None = None) -> dict[str, Any]:
    """Return a packet for programs: values as numbers and text, bytes in hex, offsets from its first byte."""
    return {
        "kind": _kind(inspection),
        "offset": at,
        "size_bytes": _size(inspection),
        "valid": inspection.is_valid,
        "fields": [
            {
                "name": field.name,
                "offset": field.offset,
                "size": field.size,
                "value": field.value if isinstance(field.value, int) else _text_value(field),
                "bytes": field.raw.hex(),
                "section": field.section,
            }
            for field in inspection.fields
        ],
        "findings": [
            {
                "error": isinstance(finding, WireFormatError),
                "field": finding.field,
                "section": finding.section,
                "text": str(finding),
            }
            for finding in inspection.findings
        ],
        **_contents(inspection, evidence),
        **({} if evidence is None else _proved(evidence)),
    }


def _proved(evidence: Evidence) -> dict[str, Any]:
    """Return what the keys prove, as values for programs; a decrypted body is in hex."""
    said = evidence._asdict()
    plain = said.pop("plain")
    return said | {"plain_body": None if plain is None else plain.hex()}


def _text_value(field: SeenField) -> str | None:
    value = field.value
    if value is None:
        return None
    if isinstance(value, bytes):
        return _guid_or_hex(field.name, value)
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _words(field: SeenField) -> str:
    value = field.value
    if isinstance(value, int):
        if field.name in FLAG_WORDS:
            return " ".join([f"{value:#x}", *_set_bits(FLAG_WORDS[field.name], value)])
        if field.name.endswith("message_class") and value in MessageClass._value2member_map_:
            return f"{value:#x} {MessageClass(value).name}"
        return str(value) if value < 10 else f"{value} ({value:#x})"
    if isinstance(value, bytes):
        text = _guid_or_hex(field.name, value)
        return _printable(value[:SHOWN_BYTES]) if text == value.hex() else text
    if value is None:
        return ""
    text = repr(value[:SHOWN_CHARACTERS])
    return text if len(value) <= SHOWN_CHARACTERS else f"{text} ..."


def _set_bits(record: type, word: int) -> Iterator[str]:
    """Yield the names of the flags that are set in a word. The flags' record defines the names.

    A flag of several bits is given with its value, as `name=value`.
    """
    for name, bits in vars(record).items():
        if isinstance(bits, Bit) and word & bits.mask:
            yield name
        elif isinstance(bits, Bits) and word & bits.mask:
            yield f"{name}={bits.within(word)}"


def _printable(data: bytes) -> str:
    """Return bytes as the right column of a hex dump shows them; empty if no byte is a visible character."""
    if not any(32 < byte < 127 for byte in data):
        return ""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def _guid_or_hex(name: str, value: bytes) -> str:
    if len(value) != len(NULL_GUID) or name.rpartition(".")[2] in PAYLOAD:
        return value.hex()
    return guid_text(Guid(value))


def _hex(raw: bytes) -> str:
    shown = raw[:SHOWN_BYTES].hex(" ", 4)
    return shown if len(raw) <= SHOWN_BYTES else f"{shown} ..."
