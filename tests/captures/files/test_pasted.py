"""Whatever people paste is read as the bytes that it was made of, or refused in one line."""

from __future__ import annotations

import base64
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import example, given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.files.pasted import INPUT_LIMIT_BYTES, read_pasted
from mqproto.wire import encode_packet, ping_packet
from tests.examples import a_ping, a_user_message

BACKSLASH: Final = chr(92)
Form = Callable[[bytes], str]
PACKET: Final = encode_packet(a_user_message(body=b"three pieces" + bytes(100)))


def letters(data: bytes, other: str = ".") -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else other for byte in data)


def lines(data: bytes, size: int = 16) -> Iterator[tuple[int, bytes]]:
    return ((at, data[at : at + size]) for at in range(0, len(data), size))


def squeezed(data: bytes, line: Callable[[int, bytes], str], end: str) -> str:
    """As hexdump and od leave out lines that are like the one before."""
    shown, before = [], None
    for at, part in lines(data):
        if part == before:
            shown += [] if shown[-1] == "*" else ["*"]
        else:
            shown.append(line(at, part))
        before = part
    return "\n".join([*shown, end.format(len(data)), ""])


def words(part: bytes, size: int) -> str:
    """Numbers of some bytes, as a machine with the low byte first shows them."""
    padded = part + bytes(-len(part) % size)
    return " ".join(padded[at : at + size][::-1].hex() for at in range(0, len(padded), size))


def hexdump_c(data: bytes) -> str:
    def line(at: int, part: bytes) -> str:
        return f"{at:08x}  {part[:8].hex(' '):23}  {part[8:].hex(' '):23}  |{letters(part)}|"

    return squeezed(data, line, "{:08x}")


def xxd(data: bytes) -> str:
    return "".join(f"{at:08x}: {part.hex(' ', -2):39}  {letters(part)}\n" for at, part in lines(data))


def wireshark(data: bytes) -> str:
    return "".join(f"{at:04x}   {part.hex(' '):47}   {letters(part)}\n" for at, part in lines(data))


def format_hex(data: bytes) -> str:
    head = "           00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F\r\n\r\n"
    return head + "".join(
        f"{at:08X}   {part.hex(' ').upper():47}  {letters(part, 'À')}\r\n" for at, part in lines(data)
    )


def array_of_c(data: bytes) -> str:
    rows = "\n".join(
        f"{', '.join(f'{byte:#04x}' for byte in part)}, /* {letters(part, '/').replace('*', '.')} */"
        for _, part in lines(data, 8)
    )
    return f"static const unsigned char pkt1[{len(data)}] = {{\n{rows}\n}};\nunsigned int pkt1_len = {len(data)};\n"


def escaped(data: bytes) -> str:
    rows = ("".join(f"{BACKSLASH}x{byte:02x}" for byte in part) for _, part in lines(data))
    return " \\\n".join(f'"{row}"' for row in rows)


FORMS: Final[dict[str, Form]] = {
    "hex stream": bytes.hex,
    "HEX": lambda data: f"0x{data.hex().upper()}\n",
    "colons": lambda data: data.hex(":"),
    "groups": lambda data: data.hex(" ", 4),
    "BitConverter": lambda data: data.hex("-").upper(),
    "xxd -p": lambda data: "\n".join(part.hex() for _, part in lines(data, 30)),
    "xxd": xxd,
    "hexdump -C": hexdump_c,
    "hexdump": lambda data: squeezed(data, lambda at, part: f"{at:07x} {words(part, 2)}", "{:07x}"),
    "od -A x -t x1z": lambda data: squeezed(
        data, lambda at, part: f"{at:06x} {part.hex(' '):47}  >{letters(part)}<", "{:06x}"
    ),
    "od -t x1": lambda data: squeezed(data, lambda at, part: f"{at:07o} {part.hex(' ')}", "{:07o}"),
    "od -A d -t x4": lambda data: squeezed(data, lambda at, part: f"{at:07d} {words(part, 4)}", "{:07d}"),
    "Wireshark": wireshark,
    "Wireshark without letters": lambda data: "".join(f"{at:04x}   {part.hex(' ')}\n" for at, part in lines(data)),
    "Format-Hex": format_hex,
    "C": array_of_c,
    "C#": lambda data: f"new byte[] {{ {', '.join(map(str, data))} }}",
    "escaped": escaped,
    "Python": repr,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@given(
    data=st.binary(min_size=1, max_size=80)
    | st.builds(lambda some, more: some + bytes(64) + more, st.binary(max_size=20), st.binary(max_size=20))
)
@example(data=b"ab cd ef 01 23 4")
@example(data=b"\x10\xc0\x0b\0LIOR" + b"ab cd ef 01 23 4" * 2)
@example(data=b"abcdef")
@example(data=bytes(16))
@example(data=bytes(17))
def test_every_form_is_read_as_its_bytes(form: str, data: bytes) -> None:
    if "*" in FORMS[form](bytes(80)):
        data = PACKET[:32] + data  # By the second offset everybody sees how these offsets are written.
    text = FORMS[form](data)
    if form == "Python" and "\\x" not in text:
        return
    assert read_pasted(text.encode(), "here") == data


@given(st.binary(min_size=20, max_size=80))
def test_base64_is_read_where_it_begins_a_packet(more: bytes) -> None:
    for data in (PACKET + more, ping_packet.encode(a_ping()) + more):
        assert read_pasted(base64.encodebytes(data), "here") == data
        assert read_pasted(base64.urlsafe_b64encode(data).rstrip(b"="), "here") == data
    with pytest.raises(UsageError, match="says no bytes"):
        read_pasted(base64.b64encode(b"no packet" + more), "here")


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "latin-1"])
def test_a_dump_that_windows_wrote_is_read(codec: str) -> None:
    assert read_pasted(format_hex(PACKET).encode(codec), "here") == PACKET


@pytest.mark.parametrize(
    "arguments", [["-A", "x", "-t", "x1z"], ["-A", "x", "-t", "x1z", "-v"], ["-t", "x1"], ["-x"]]
)
def test_what_od_writes_here_is_read(arguments: list[str]) -> None:
    written = subprocess.run(["od", *arguments], input=PACKET, capture_output=True, check=True, timeout=20)
    order = PACKET if sys.byteorder == "little" or "-x" not in arguments else b""
    assert order in (b"", read_pasted(written.stdout, "here"))


def test_dumps_behind_one_another_are_joined() -> None:
    assert read_pasted((xxd(PACKET) + "\nand then\n" + wireshark(PACKET)).encode(), "here") == PACKET * 2


@pytest.mark.parametrize("form", ["xxd", "hexdump -C", "Wireshark", "Format-Hex"])
def test_a_dump_of_which_a_line_or_a_digit_is_missing_is_refused(form: str) -> None:
    data = bytes(range(100, 180))
    whole = FORMS[form](data).splitlines(keepends=True)
    torn = "".join(whole[:-4] + whole[-3:])
    with pytest.raises(UsageError, match="something missing: line"):
        read_pasted(torn.encode(), "here")
    with pytest.raises(UsageError, match="something missing: line"):
        read_pasted(
            "".join([*whole[:-2], whole[-2].replace(" a", " ", 1).replace(" A", " ", 1), whole[-1]]).encode(),
            "here",
        )


@given(st.binary(min_size=1, max_size=100).map(lambda data: b"\x10\0" + data))
def test_bytes_with_a_control_character_are_the_packet(data: bytes) -> None:
    assert read_pasted(data, "here") == data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"123", "odd number"),
        (b"hello there", "says no bytes"),
        (b"{ 0x100 }", "no byte"),
        (b"{ 16, 12345678901234567890 }", "no byte"),
        (b"\"\\x10\\q\"", "no escape"),
        (b"10 00\n*\n", r"od -v"),
        (b"011 00000000\n013\n014 0000", "odd number"),
        (b"010 00000000035d8000\n020\n001", "odd number"),  # Offsets that go back.
        (bytes(INPUT_LIMIT_BYTES + 1), "more than"),
    ],
)  # fmt: skip
def test_what_says_no_bytes_is_refused_with_what_to_do(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refusal:
        read_pasted(data, "here")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "data",
    [
        b"\n" * 2**18,
        b"000\n" * 2**14,
        b"00000000  00\n*\nffffffff  00\n",
        b"{" * 2**18,
        b"/*" * 2**17 + b"{",
        b"\\x" * 2**17,
        b'"\\x10' * 2**15,
        b"*\n" * 2**16,
        b"0" * 2**18 + b"g",
        b"A" * 2**18 + b"!",
        b"0000: " + b"00 " * 2**16 + b"!",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_whatever_comes_memory_is_bounded(data: bytes) -> None:
    tracemalloc.start()
    with suppress(UsageError):
        read_pasted(data, "here")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * 2**18
