"""Our own readers as targets of `mqproto fuzz parser`: xml, activex, binary, headers, security and decode.

Each has valid inputs, words of its format, and a judge. The reader must explain the bytes, or say in one line why it
cannot, and its explanation must be correct. The fuzzer watches time and memory.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final
from uuid import UUID

from mqproto.base.errors import UsageError
from mqproto.base.foreign import TEXT_LIMIT
from mqproto.bodies import (
    BINARY,
    BYTES,
    MASSTRANSIT,
    NSERVICEBUS,
    REBUS,
    DateTime,
    Headers,
    Tree,
    Value,
    describe,
    from_json,
    read_body,
    read_headers,
    write_body,
    write_headers,
)
from mqproto.bodies.automation import BY_NAME, BY_NUMBER, VT_EMPTY
from mqproto.bodies.objects import BINARY_FORMATTER
from mqproto.simulator.fuzz.parser import guarded, pasting
from mqproto.simulator.fuzz.parser.judges import BURST, Broken
from mqproto.simulator.fuzz.parser.material import Material, Packets, Writings
from mqproto.simulator.fuzz.parser.seeds import generated

_NUMBERS: Final = re.compile(r"'.*'|[0-9][0-9,]*", re.DOTALL)
"""Matches the parts of a reason that differ from body to body."""
_LETTERS: Final = "ab c<&>'\"\\\n\r\t\0\x1bäß€\U0001f4e8\ufffe"
_ENDS_WITH_NUL: Final = ("VT_LPSTR", "VT_LPWSTR")
"""The types whose texts are shown in full, even after a NUL, but cannot be written with a NUL."""
_INTEGERS: Final = (0, -1, 127, 128, 2**15, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**64 - 1)


class ReaderJudge:
    """The judge of one of our readers.

    Args:
        question: the property to check, described in words.
        ask: checks the property for some bytes; returns the way that they took, or raises Broken.
    """

    def __init__(self, question: str, ask: Callable[[bytes], Hashable]) -> None:
        self.counts: Counter[str] = Counter()
        self._question = question
        self._ask = ask

    def judge(self, data: bytes) -> Hashable:
        self.counts[self._question] += 1
        return self._ask(data)

    def judge_again(self, data: bytes) -> None:
        self._ask(data)

    def burst(self, packet: bytes) -> int:
        return BURST


@dataclass(frozen=True, slots=True)
class ReaderTarget:
    """One reader and its inputs."""

    question: str
    ask: Callable[[bytes], Hashable]
    seeds: Callable[[], Sequence[bytes]]
    words: Sequence[bytes]
    draw: Callable[[random.Random], bytes]
    has_packets: bool = False
    """Whether the reader's inputs are packets, which are mutated according to their layouts."""

    @property
    def judge(self) -> ReaderJudge:
        return ReaderJudge(self.question, self.ask)

    @property
    def material(self) -> Material:
        if self.has_packets:
            return Packets(self.seeds())
        return Writings(self.seeds(), self.words, self.draw)


def _asked(body: bytes, body_type: int) -> Hashable:
    """Check that a body is explained, or shown as bytes with a reason; that its JSON agrees; and that its round trip
    succeeds."""
    found = read_body(body, body_type)
    if len(found.reason) > TEXT_LIMIT or not found.reason.isprintable():
        raise Broken("reason", f"it is not a line that can be printed: {found.reason!r}")
    if found.reason and found.value != body:
        raise Broken("reason", "what is not explained is not shown as it is")
    content = describe(found).get("content", {})
    # This is the form in which it is shown and sent to others.
    text = json.dumps(content, ensure_ascii=False)
    text.encode("utf-8")
    if found.kind == BYTES:
        return _NUMBERS.sub("", found.reason)
    if _same(from_json(json.loads(text)["value"])) != _same(found.value):
        raise Broken("JSON", f"it says something else: {text[:200]}", found.kind)
    if found.kind != BINARY and not (found.kind in _ENDS_WITH_NUL and "\0" in str(found.value)):
        written, kept_type = write_body(found.value, found.kind)
        again = read_body(written, kept_type)
        if (again.kind, _same(again.value)) != (found.kind, _same(found.value)):
            raise Broken("round trip", f"{found.kind} is written as {written[:200]!r}", found.kind)
    return found.kind, _shape(found.value)


def _same(value: Value) -> str:
    """Return a value in a form that can be compared and that keeps NaN, signed zeros and types distinct."""
    return repr(value)


def _shape(value: Value, depth: int = 2) -> Hashable:
    """Return the rough structure of a value. The fuzzer continues from inputs that have a new structure."""
    if isinstance(value, Tree) and depth:
        return "Tree", tuple(_shape(member, depth - 1) for _, member in value.members[:4])
    if isinstance(value, list) and depth:
        return len(value).bit_length(), tuple(_shape(item, depth - 1) for item in value[:4])
    return type(value).__name__


def _xml(data: bytes) -> Hashable:
    return _asked(data, VT_EMPTY)


def _binary(data: bytes) -> Hashable:
    return _asked(data, BINARY_FORMATTER)


def _activex(data: bytes) -> Hashable:
    """Check a body whose first two bytes are the body type."""
    return _asked(data[2:], int.from_bytes(data[:2], "little"))


def _headers(data: bytes) -> Hashable:
    """Check that the reader finds headers or reports that there are none, and that headers stay the same when they are
    written and read again.
    """
    found = read_headers(data)
    if found is None:
        return None, data[:1]
    json.dumps(dict(found.fields), ensure_ascii=False).encode("utf-8")
    if (again := read_headers(write_headers(found))) != found:
        raise Broken("round trip", f"{found} is read as {again}", found.sender)
    return found.sender, len(found.fields).bit_length(), any(value is None for value in found.fields.values())


def _activex_seeds() -> list[bytes]:
    dice = random.Random(0)
    return [_variant(dice, name) for name in BY_NAME] + [b"\x0f\x20"]


def _variant(dice: random.Random, name: str = "") -> bytes:
    """Return the number of one of COM's types, followed by a body of that type."""
    chosen = BY_NAME[name or dice.choice(list(BY_NAME))]
    while True:
        try:
            return chosen.number.to_bytes(2, "little") + chosen.write(_leaf(dice))
        except UsageError:
            if chosen.name == "VT_STREAMED_OBJECT":
                return chosen.number.to_bytes(2, "little") + dice.randbytes(16 + dice.randrange(40))


def _xml_seeds() -> list[bytes]:
    line = Tree("Line", (("@at", "1"), ("Sku", "a & b"), ("Sku", None), ("#text", "more")))
    note = Tree("", (("@xsi:type", "x"), ("#text", "x")))
    order = Tree("{urn:orders}Order", (("Id", "5"), ("{urn:lines}Line", line), ("Note", note)))
    values: list[tuple[Value, str]] = [
        (5, "xml"), ("ä\x01€", "xml"), (DateTime(5, "Z"), "xml"), (UUID(int=7), "xml"), (b"\0\1", "xml"),
        ([1, None, 2], "xml"), ([1.5, "a", None, [True]], "xml"), (Decimal("-1.50"), "xml:decimal"), ("x", "xml:char"),
        (order, "xml"),
    ]  # fmt: skip
    written = [write_body(value, kind)[0] for value, kind in values]
    text = written[-1].decode("utf-8").replace('encoding="utf-8"', "")
    return [*written, b"\xff\xfe" + text.encode("utf-16-le"), b"<a><![CDATA[&#1;]]><!-- --><?b c?></a>"]


def _drawn_xml(dice: random.Random) -> bytes:
    while True:
        try:
            return write_body(_value(dice, 3), "xml")[0]
        except UsageError:
            continue


def _headers_seeds() -> list[bytes]:
    return [
        write_headers(Headers(NSERVICEBUS, {"NServiceBus.MessageId": "1", "Other": None, "Text": "ä<&>"}))
        + b"\0\0",
        write_headers(Headers(NSERVICEBUS, {})),
        write_headers(Headers(REBUS, {"rbs2-msg-id": "1", "rbs2-intent": "p2p", "own": None})),
        write_headers(
            Headers(MASSTRANSIT, {"Content-Type": "application/vnd.masstransit+json", "ä": "\x01"})
        ),
    ]


def _drawn_headers(dice: random.Random) -> bytes:
    fields: dict[str, str | None] = {
        _text(dice): dice.choice((None, _text(dice))) for _ in range(dice.randrange(6))
    }
    sender = dice.choice((NSERVICEBUS, REBUS, MASSTRANSIT))
    if sender == REBUS:
        fields["rbs2-id"] = _text(dice)
    elif sender == MASSTRANSIT:
        fields["Content-Type"] = "application/vnd.masstransit+json"
    return write_headers(Headers(sender, fields))


def _text(dice: random.Random) -> str:
    return "".join(dice.choice(_LETTERS) for _ in range(dice.choice((0, 1, 3, 40))))


def _leaf(dice: random.Random) -> Value:
    choices: tuple[Callable[[], Value], ...] = (
        lambda: None,
        lambda: dice.random() < 0.5,
        lambda: dice.choice(_INTEGERS) >> dice.choice((0, 0, 16, 56)),
        lambda: dice.choice((0.0, -1.5, 1e300, float("inf"), dice.uniform(-1e5, 1e5))),
        lambda: _text(dice),
        lambda: dice.randbytes(dice.choice((0, 1, 16, 60))),
        lambda: Decimal(dice.randrange(-(10**9), 10**9)).scaleb(-dice.randrange(5)),
        lambda: UUID(int=dice.getrandbits(128)),
        lambda: DateTime(dice.randrange(10**18), dice.choice(("", "Z", "+05:30"))),
    )
    return dice.choice(choices)()


def _value(dice: random.Random, depth: int) -> Value:
    roll = dice.random()
    if not depth or roll < 0.3:
        return _leaf(dice)
    inner = [_value(dice, depth - 1) for _ in range(dice.choice((0, 1, 2, 5)))]
    if roll < 0.5:
        return inner
    names = ("A", "B", "{urn:n}C", "@d")
    return Tree(dice.choice(("", "Order")), tuple((dice.choice(names), each) for each in inner))


STREAMS: Final = """
AAEAAAD/////AQAAAAAAAAAMAgAAADhmLCBWZXJzaW9uPTAuMC4wLjAsIEN1bHR1cmU9bmV1dHJhbCwgUHVibGljS2V5VG9rZW49bnVsbAUB
AAAABE5vZGUIAAAABE5hbWUGUGFyZW50A0FueQRHcmlkBkphZ2dlZAVTcGFucwVDaGFycwZDb3VudHMBBAIDAwMHAwROb2RlAgAAAA9TeXN0
ZW0uSW50MzJbLF0QU3lzdGVtLkludDMyW11bXRFTeXN0ZW0uVGltZVNwYW5bXQPhAVN5c3RlbS5Db2xsZWN0aW9ucy5HZW5lcmljLkRpY3Rp
b25hcnlgMltbU3lzdGVtLlN0cmluZywgbXNjb3JsaWIsIFZlcnNpb249NC4wLjAuMCwgQ3VsdHVyZT1uZXV0cmFsLCBQdWJsaWNLZXlUb2tl
bj1iNzdhNWM1NjE5MzRlMDg5XSxbU3lzdGVtLkludDMyLCBtc2NvcmxpYiwgVmVyc2lvbj00LjAuMC4wLCBDdWx0dXJlPW5ldXRyYWwsIFB1
YmxpY0tleVRva2VuPWI3N2E1YzU2MTkzNGUwODldXQIAAAAGAwAAAAAJBAAAAAgIfcFIXwkFAAAACgkGAAAACQcAAAAKAQQAAAABAAAACQMA
AAAJAQAAAAkKAAAACgkLAAAACgoKBwUAAAACAgAAAAIAAAADAAAAAAgBAAAApoODEAMAAAAEAAAABQAAAAYAAAAPBgAAAAEAAAAMSkt+7Pom
/UIPBwAAAAMAAAADYcOk4oKsEAoAAAACAAAACA9oVs1YCAUdMzgxNjE0MTAxOTk5MzA3MTM2MjI2MjM0MDUuODAHCwAAAAEBAAAAAAAAAAcI
Cw==

AAEAAAD/////AQAAAAAAAAAMAgAAADhmLCBWZXJzaW9uPTAuMC4wLjAsIEN1bHR1cmU9bmV1dHJhbCwgUHVibGljS2V5VG9rZW49bnVsbAUB
AAAABU9yZGVyDAAAAAJJZAhDdXN0b21lcgJBdANLZXkERGF0YQVMaW5lcwRQYWlkBldlaWdodAVDb2xvcgVGaXJzdAVUb3RhbARNYXJrAAEA
AwcEAwAEBAAACA0LU3lzdGVtLkd1aWQCBkxpbmVbXQIAAAAOU3lzdGVtLkJvb2xlYW4GBUNvbG9yAgAAAARMaW5lAgAAABADAgAAALDgCEkG
AwAAAADfI2l5aT7bDAT8////C1N5c3RlbS5HdWlkCwAAAAJfYQJfYgJfYwJfZAJfZQJfZgJfZwJfaAJfaQJfagJfawAAAAAAAAAAAAAACAcH
AgICAgICAgJvGL/YFB2QRHxSwQ0NiH3GCQUAAAAKCAEBAAAAAACAHkAF+v///wVDb2xvcgEAAAAHdmFsdWVfXwAIAgAAAAAAAAAK/v//////
//9aDwUAAAADAAAAAuAitQs=

AAEAAAD/////AQAAAAAAAAAMAgAAADhmLCBWZXJzaW9uPTAuMC4wLjAsIEN1bHR1cmU9bmV1dHJhbCwgUHVibGljS2V5VG9rZW49bnVsbAcB
AAAAAAEAAAAAAAAABARMaW5lAgAAAAs=

AAEAAAD/////AQAAAAAAAAAMAgAAADhmLCBWZXJzaW9uPTAuMC4wLjAsIEN1bHR1cmU9bmV1dHJhbCwgUHVibGljS2V5VG9rZW49bnVsbAUB
AAAABUNvbG9yAQAAAAd2YWx1ZV9fAAgCAAAAAAAAAAs=

AAEAAAD/////AQAAAAAAAAAEAQAAAAtTeXN0ZW0uR3VpZAsAAAACX2ECX2ICX2MCX2QCX2UCX2YCX2cCX2gCX2kCX2oCX2sAAAAAAAAAAAAA
AAgHBwICAgICAgICr5Ebn/94F/kpMgar4U+mJQs=

AAEAAAD/////AQAAAAAAAAAEAQAAAA5TeXN0ZW0uRGVjaW1hbAQAAAAFZmxhZ3MCaGkCbG8DbWlkAAAAAAgICAgAAByAuAoZbuBhd0oAAAAA
Cw==

AAEAAAD/////AQAAAAAAAAAHAQAAAAICAAAAAgAAAAMAAAAACAEAAADJy3MFAwAAAAQAAAAFAAAABgAAAAs=

AAEAAAD/////AQAAAAAAAAAHAQAAAAEBAAAAAwAAAAcICQIAAAAJAwAAAAkEAAAADwIAAAACAAAACEFaL4HyqE0DDwMAAAAAAAAACA8EAAAA
BAAAAAjtlEw9BcWYo/e4QVkfhQwKCw==

AAEAAAD/////AQAAAAAAAAAQAQAAAAQAAAAIDiF6CAkBAAAAAAAAAAgQQJET32mTurgIBR4zODc5OTI0ODI2NS4yNjA2MTY4NDczNzg3NjYx
NjYL

AAEAAAD/////AQAAAAAAAAARAQAAAAMAAAAKBgIAAAAIw6TDtsO8woUGAwAAAAEZCw==

AAEAAAD/////AQAAAAAAAAAEAQAAAA9TeXN0ZW0uRGF0ZVRpbWUCAAAABXRpY2tzCGRhdGVEYXRhAAAJEP/2gHvoxwwd//aAe+jHDJ0L

AAEAAAD/////AQAAAAAAAAAPAQAAAAsAAAACDLwF44Rn0AeAbQsL
"""
"""The output of Mono's BinaryFormatter: objects and arrays of each form, in Base64, separated by empty lines."""


def _streams() -> list[bytes]:
    return [base64.b64decode(line) for line in STREAMS.split("\n\n")]


_RECORDS: Final = [bytes((code,)) for code in range(18)]
_XML_WORDS: Final = (
    b"<a>", b"</a>", b"<a b='c'/>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<!DOCTYPE a [", b"<!ENTITY b 'c'>", b"&b;",
    b"&#0;", b"&#1;", b"&#xFFFE;", b"&#xF0001;", b"&#x110000;", b"&amp;", b"<?xml version='1.0' encoding='utf-16'?>",
    b" xmlns='urn:x'", b" xmlns:p='urn:y'", b"<p:q/>", b" xsi:nil='true'", b" xsi:type='xsd:int'",
    b" xsi:type='ArrayOfInt'", b"<ArrayOfAnyType>", b"<int>", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\0", b"\r\n",
    b"\xf3\xb0\x80\x81", b"\xed\xa0\x80",
)  # fmt: skip

TARGETS: Final = {
    "xml": ReaderTarget(
        "is explained, or shown with its reason; written, it is read as the same",
        _xml, _xml_seeds, _XML_WORDS, _drawn_xml,
    ),
    "activex": ReaderTarget(
        "is explained, or shown with its reason; written, it is read as the same",
        _activex, _activex_seeds,
        [number.to_bytes(2, "little") for number in BY_NUMBER] + [b"\0\0", b"\xff\xff", b"\0\xd8"], _variant,
    ),
    "binary": ReaderTarget(
        "is explained, or shown with its reason; its JSON says the same",
        _binary, _streams,
        [*_RECORDS, b"\x09\1\0\0\0", b"\x0d\xff", b"\x0e\xff\xff\xff\x7f", b"\x06\x09\0\0\0\x01x",
         b"\x80\x80\x80\x80\x08",
         b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x10\x09\0\0\0\x02\0\0\0", b"\x0bSystem.Guid",
         b"\x0dSystem.ObjRef"],
        lambda dice: dice.choice(_streams()),
    ),
    "headers": ReaderTarget(
        "headers are found, or none; written, they are read as the same",
        _headers, _headers_seeds,
        [*_XML_WORDS, b"<HeaderInfo>", b"<Key>", b"<Value>", b"</ArrayOfHeaderInfo>", b'"a":"b"', b"{", b"}", b"[",
         b"]", b",", b"null", b'"rbs2-', b"\\ud800", b"\\u0000", b"1e999", b"NaN"],
        _drawn_headers,
    ),
    "security": ReaderTarget(guarded.QUESTION, guarded.ask, guarded.seeds, [], generated, has_packets=True),
    "decode": ReaderTarget(pasting.QUESTION, pasting.ask, pasting.seeds, pasting.WORDS, pasting.drawn),
}  # fmt: skip
"""The targets, keyed by the name that `--target` takes."""
