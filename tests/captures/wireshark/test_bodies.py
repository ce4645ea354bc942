"""Our dissector's results for bodies, as tshark shows them, compared with what `mqproto decode` says with
`mqproto.bodies`.
"""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from mqproto.bodies import Body, DateTime, Tree, Value, read_body, write_body
from mqproto.bodies.automation import BY_NUMBER
from mqproto.bodies.objects import BINARY_FORMATTER
from mqproto.testing import mutated
from mqproto.wire import encode_packet
from tests.bodies.values import NULL, TEXTS, array, instance, stream, string, xml_trees
from tests.captures.wireshark.dissecting import (
    NO_XML,
    conversation,
    dissected,
    drawn,
    needs_tshark,
    write_capture,
)
from tests.examples import a_user_message

pytestmark = needs_tshark

SHOWN_BYTES = 65_536
NOT_JUDGED = r"it is not XML: |the XML has (?!a DOCTYPE)"
"""Matches the reasons why a body may not be XML although its tags match."""


class Typed(NamedTuple):
    """A body and its type."""

    body: bytes
    body_type: int


def contents(folder: Path, bodies: list[Typed]) -> list[dict[str, str]]:
    """Return what tshark shows for each body: those of `value`, `kind`, `class` and `reason` that are there."""
    messages = []
    for body, body_type in bodies:
        message = a_user_message(body=body)
        message.properties.body_type = body_type
        messages.append(encode_packet(message))
    capture = write_capture(folder / "bodies.pcapng", [conversation(1, *messages)])
    seen = dissected(capture, folder)
    assert len(seen) == len(bodies)
    assert not any(packet.fault_count for packet in seen)
    return [
        {
            name.removeprefix("msmq.content").removeprefix(".") or "value": text
            for name, text in packet.further
            if name.startswith("msmq.content")
        }
        for packet in seen
    ]


def in_pdml(text: str) -> str:
    """Return a text in the form that it has in tshark's tree, where it was an XML attribute."""
    escaped = re.sub(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text)
    return re.sub(r"[\r\n\t]", " ", escaped.replace("\r\n", "\n").translate(NO_XML))


def in_words(value: Value) -> str | None:
    """Return a value as the dissector writes it; None if the value is just the bytes."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return repr(value)
        case Decimal():
            return format(value, "f")
        case str():
            return in_pdml(value)
        case int() | UUID() | DateTime():
            return str(value)
    return None


def document(body: bytes) -> str:
    """Return the text of a body that is XML."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return body.decode("utf-16")
    latin = re.match(rb"<\?xml[^>]*iso-8859-1", body, re.IGNORECASE)
    return body.decode("iso-8859-1" if latin else "utf-8-sig")


def check(typed: Typed, shown: dict[str, str]) -> None:
    """Check that the dissector's result is that of our reader, or is less detailed where the dissector may know
    less.
    """
    found = read_body(*typed)
    if not found.reason and found.kind == "bytes":
        assert shown == {}
    elif shown["kind"] == "bytes":
        assert found.reason, "the reader explains what the dissector does not"
        end = found.reason.find(": ") if "not XML" in found.reason else len(found.reason)
        if typed.body_type != BINARY_FORMATTER:
            assert shown["reason"].startswith(in_pdml(found.reason[:end]))
    elif found.reason:
        assert shown["kind"] == "binary" or re.match(NOT_JUDGED, found.reason), found.reason
    else:
        check_explained(typed, found, shown)


def check_explained(typed: Typed, found: Body, shown: dict[str, str]) -> None:
    """Check the result for a body that our reader and the dissector both explain."""
    assert shown["kind"] == found.kind.partition(":")[0]
    if shown["kind"] == "xml":
        assert shown["value"] == in_pdml(document(typed.body))
    elif shown["kind"] == "VT_STREAMED_OBJECT":
        assert isinstance(found.value, Tree)
        assert shown["class"] == str(found.value["clsid"])
    elif isinstance(found.value, Tree):
        assert shown["class"] == in_pdml(found.value.name)
    elif shown["kind"] != "binary" or "class" in shown:
        assert shown["value"] == (in_words(found.value) or "")


def of_variants() -> st.SearchStrategy[Typed]:
    """Draw bodies of COM's types, with the right size or a wrong one, and bodies of unknown types."""
    texts = TEXTS.flatmap(lambda text: st.sampled_from([text, text + "\0"])).map(str.encode)
    wide = st.text(max_size=20).map(lambda text: text.encode("utf-16-le", "surrogatepass"))
    odd = st.sampled_from([0.0, -0.0, 0.1, 1e16, 1e22, -1.5e-7, 5e-324, float("inf"), float("nan"), 36526.75])
    doubles = (st.floats() | odd | st.floats(-700_000, 3_000_000)).map(struct.Struct("<d").pack)
    octets = st.one_of(*(st.binary(min_size=size, max_size=size) for size in (0, 1, 2, 4, 8, 9, 16, 20)))
    numbers = st.sampled_from([*BY_NUMBER, 12, 0x2008, 0xFFFFFFFF])
    return st.builds(Typed, octets | texts | wide | doubles, numbers)


def of_dates() -> st.SearchStrategy[Typed]:
    """Draw dates of type VT_DATE, to the millisecond, including some near the type's limits."""
    days = st.floats(-657_436, 2_958_467) | st.integers(-657_435, 2_958_466).map(float)
    return days.map(lambda each: Typed(struct.pack("<d", each), 7))


def of_xml() -> st.SearchStrategy[Typed]:
    """Draw XML as .NET writes it, in each encoding, both intact and damaged."""
    written = st.one_of(
        xml_trees().map(lambda tree: write_body(Tree("Order", tree.members), "xml")[0]),
        TEXTS.map(lambda text: write_body(text, "xml")[0]),
        st.lists(TEXTS).map(lambda texts: write_body(list(texts), "xml")[0]),
    )
    encoded = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])

    def again(data: bytes, codec: str) -> bytes:
        mark = "\ufeff" if codec == "utf-16-be" else ""
        return (mark + data.decode()).encode(codec)

    whole = st.builds(again, written, encoded)
    return (whole | whole.flatmap(mutated)).map(lambda body: Typed(body, 0))


def of_streams() -> st.SearchStrategy[Typed]:
    """Draw streams of BinaryFormatter, both intact and damaged."""
    name = TEXTS.filter(len)
    roots = st.one_of(
        TEXTS.map(lambda text: stream(string(1, text))),
        name.map(lambda text: stream(b"\x0c\x02\0\0\0\x01L", instance(1, text, ["a"], NULL))),
        st.just(stream(array(1, NULL))),
    )
    return (roots | roots.flatmap(mutated)).map(lambda body: Typed(body, BINARY_FORMATTER))


def test_a_body_says_in_wireshark_what_decode_says(tmp_path: Path) -> None:
    bodies = [
        body
        for strategy in (of_variants(), of_dates(), of_xml(), of_streams())
        for body in drawn(strategy, 120)
    ]
    for body, shown in zip(bodies, contents(tmp_path, bodies), strict=True):
        check(body, shown)


GADGET = stream(instance(1, "System.Windows.Data.ObjectDataProvider", ["a"], NULL))
INSIDE = stream(instance(1, "List", ["a"], instance(2, "System.Web.Security.RolePrincipal", ["b"], NULL)))
REASONS = [
    (b"<a>" * 350_000, 0, "the XML is nested deeper than 100 levels"),
    (b"<a>" + b"<b/>" * 200_000 + b"</a>", 0, "the XML has more than 200,000 elements and attributes"),
    (
        b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        0,
        "the XML has a DOCTYPE, which may define entities and is not read",
    ),
    (b"<a>\0</a>", 0, "it is not XML: it has a NUL byte"),
    (
        b'<?xml version="1.0" encoding="koi8-r"?><a/>',
        0,
        "the XML is in 'koi8-r': UTF-8, UTF-16 and ISO-8859-1 are read",
    ),
    (b"\xff\xfe<\0\0\xd8", 0, "the XML is not the UTF-16 that its first bytes say"),
    (b"<a></b>", 0, "it is not XML: mismatched tag"),
    (b"<a><b></a>", 0, "it is not XML: mismatched tag"),
    (b"<a/><b/>", 0, "it is not XML: a tag where none may be"),
    (b"<a b='", 0, "it is not XML: an attribute has no end"),
    (b"<a>&c;</a>", 0, "it is not XML: it refers to an entity that is not there"),
    (b"<a>\xff</a>", 0, "it is not XML: it is not UTF-8"),
    (b"abc", 8, "VT_BSTR is text, and the body is not UTF-16"),
    (bytes(4_000_000), 3, "VT_I4 has 4 bytes, and the body 4,000,000"),
    (b"\xe4", 30, "VT_LPSTR is text, and the body is not ASCII, and the sender's code page is not known"),
    (b"a", 65, "body type 0x41 has no published form"),
    (b"<a/>", BINARY_FORMATTER, "it is not a stream of BinaryFormatter: it does not begin with its header"),
    (
        GADGET,
        BINARY_FORMATTER,
        "the stream names System.Windows.Data.ObjectDataProvider, with which streams attack those who read them",
    ),
    (
        INSIDE,
        BINARY_FORMATTER,
        "the stream names System.Web.Security.RolePrincipal, with which streams attack those who read them",
    ),
]


def test_a_body_that_its_type_does_not_explain_is_bytes_with_the_reason(tmp_path: Path) -> None:
    bodies = [Typed(body, body_type) for body, body_type, _ in REASONS]
    shown = contents(tmp_path, bodies)
    assert shown == [{"value": "", "kind": "bytes", "reason": reason} for _, _, reason in REASONS]
    for body, content in zip(bodies, shown, strict=True):
        check(body, content)


def test_a_long_text_is_shown_in_part(tmp_path: Path) -> None:
    """Even the part that is not shown is checked."""
    kinds = ["VT_BSTR", "VT_LPWSTR", "xml", "VT_LPSTR"]
    texts = [("x" if kind == "VT_LPSTR" else "ä€😀") * 100_000 for kind in kinds]
    bodies = [Typed(*write_body(text, kind)) for text, kind in zip(texts, kinds, strict=True)]
    broken = [Typed(body[:-40] + b"\0\xdc" + body[-40:], body_type) for body, body_type in bodies[:2]]
    *shown, first, second = contents(tmp_path, [*bodies, *broken])
    for kind, text, (body, _), part in zip(kinds, texts, bodies, shown, strict=True):
        assert part["kind"] == kind
        assert part["value"].endswith(" ...")
        whole = in_pdml(document(body)) if kind == "xml" else text
        assert whole.startswith(part["value"][:-4])
        assert SHOWN_BYTES - 3 <= len(part["value"][:-4].encode()) <= SHOWN_BYTES
    for kind, part in zip(kinds, (first, second), strict=False):
        assert part["reason"] == f"{kind} is text, and the body is not UTF-16"
