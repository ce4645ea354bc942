"""The input of `mqproto decode` as a target of the fuzzer: packets, Pings and streams of them, raw or as people paste
them."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Hashable
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures.files.pasted import read_pasted
from mqproto.captures.payload import take_apart
from mqproto.simulator.command import show
from mqproto.simulator.fuzz.parser.judges import Broken
from mqproto.simulator.fuzz.parser.seeds import a_ping, examples, generated
from mqproto.wire import inspect_stream

SHOWN: Final = 8
"""The number of packets of a stream that are checked. It is small, because construct takes a millisecond for each."""
QUESTION: Final = "is bytes, each shown once, or refused in a line"
WORDS: Final = (
    b"0000  ", b"00000010: ", b"0000020 ", b"*\n", b"\n", b"  |", b"|\n", b"  >..<", b"0x", b"{", b"}", b"/*", b"*/",
    b"//", b"\\x", b'"', b"'", b"\\", b"-", b",", b"=", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x80", b"LIOR", b"HU",
    b"4c494f52", b"ffffffff",
)  # fmt: skip


def ask(data: bytes) -> Hashable:
    """Check that the input is read as bytes or refused in one line, that each byte is shown once, and that what is
    shown can be written as JSON.
    """
    try:
        found = read_pasted(data, "it")
    except UsageError as error:
        if not str(error).isprintable():
            raise Broken("reason", f"it is not a line that can be printed: {error}") from None
        return "".join(letter for letter in str(error)[:40] if letter.isalpha())
    ways: list[Hashable] = []
    for dump in found:
        _look(dump, ways)
    if sum(len(part.data) for part in take_apart(found).parts) > sum(map(len, found)):
        raise Broken("apart", "more is shown than there is")
    return found[0] is data, *ways[:2]


def _look(found: bytes, ways: list[Hashable]) -> None:
    """Check that each byte is shown once."""
    end = 0
    for at, inspection in inspect_stream(found):
        raw = b"".join(field.raw for field in inspection.fields)
        if at != end or not raw or found[at : at + len(raw)] != raw:
            raise Broken("stream", f"not each byte is shown once from byte {end} on")
        json.dumps(show.as_json(inspection, at), ensure_ascii=False).encode("utf-8")
        ways.append((len(inspection.fields), *(finding.field for finding in inspection.findings)))
        end = at + len(raw)
        if len(ways) >= SHOWN:
            break
    else:
        if end != len(found):
            raise Broken("stream", f"nothing is shown from byte {end} on")


def _dump(data: bytes) -> bytes:
    return b"".join(
        f"{at:08x}  {data[at : at + 16].hex(' '):47}  |{_letters(data[at : at + 16])}|\n".encode()
        for at in range(0, len(data), 16)
    )


def _letters(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def _words(data: bytes) -> bytes:
    """Return a dump in the form that hexdump prints, in which a * stands for repeated lines."""
    lines: list[str] = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        if at and part == data[at - 16 : at]:
            lines += [] if lines[-1] == "*" else ["*"]
        else:
            swapped = (part[each : each + 2][::-1].rjust(2, b"\0").hex() for each in range(0, len(part), 2))
            lines.append(f"{at:07x} {' '.join(swapped)}")
    return "\n".join([*lines, f"{len(data):07x}", ""]).encode()


FORMS: Final[tuple[Callable[[bytes], bytes], ...]] = (
    bytes,
    lambda data: data.hex(" ").encode(),
    _dump,
    _words,
    lambda data: f"char x[] = {{ {', '.join(map(hex, data))} }}; /* it */".encode(),
    lambda data: "".join(f"\\x{byte:02x}" for byte in data).encode(),
    base64.encodebytes,
    lambda data: b"\xff\xfe" + _dump(data).decode("ascii").encode("utf-16-le"),
)


def seeds() -> list[bytes]:
    some = [examples()[1], a_ping(), examples()[3] + a_ping() + examples()[2] + b"rest"]
    return [form(data) for data in some for form in FORMS] + [_over_http()]


def _over_http() -> bytes:
    """Return a message that has the flag AH set, and the two headers that this flag announces."""
    packet = bytearray(examples()[3])
    packet[63] |= 2
    packet += b"\0\0\0\0\4\0\0\0a\0b\0c\0\0\0" + b"\xf4\1\0\0\4\0\0\0\1\0\0\0\2\0\0\0POST"
    packet[8:12] = len(packet).to_bytes(4, "little")
    return bytes(packet)


def drawn(dice: random.Random) -> bytes:
    return dice.choice(FORMS)(b"".join(generated(dice) for _ in range(dice.choice((1, 1, 2)))))
