"""Pasted text of any form is read as its original bytes, or refused in one line."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import example, given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.files.pasted import INPUT_LIMIT_BYTES, read_pasted as dumps_in
from mqproto.wire import encode_packet, ping_packet
from tests.examples import a_ping, a_user_message

BACKSLASH: Final = chr(92)
Form = Callable[[bytes], str]
PACKET: Final = encode_packet(a_user_message(body=b"three pieces" + bytes(100)))


def read_pasted(data: bytes, where: str) -> bytes:
    """Return the bytes of all dumps, joined in order."""
    return b"".join(dumps_in(data, where))


def letters(data: bytes, other: str = ".") -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else other for byte in data)


def lines(data: bytes, size: int = 16) -> Iterator[tuple[int, bytes]]:
    return ((at, data[at : at + size]) for at in range(0, len(data), size))


def squeezed(data: bytes, line: Callable[[int, bytes], str], end: str) -> str:
    """Return lines of text, with a `*` for lines that repeat the one before, as in hexdump and od."""
    shown, before = [], None
    for at, part in lines(data):
        if part == before:
            shown += [] if shown[-1] == "*" else ["*"]
        else:
            shown.append(line(at, part))
        before = part
    return "\n".join([*shown, end.format(len(data)), ""])


def words(part: bytes, size: int) -> str:
    """Return the numbers that some bytes form, as a little-endian machine shows them."""
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
    written = subprocess.run(["od", *arguments], input=PACKET, capture_output=True, check=True)
    order = PACKET if sys.byteorder == "little" or "-x" not in arguments else b""
    assert order in (b"", read_pasted(written.stdout, "here"))


def debugger(data: bytes, size: int, line: str, parted: str = " ") -> str:
    """Return memory as gdb, lldb and WinDbg show it.

    It is shown by address, either in bytes or in little-endian numbers.
    """
    padded = data + bytes(-len(data) % size)
    shown = []
    for at, part in lines(padded, 16 if "letters" in line or size > 2 else 8 * size):
        numbers = [
            f"{int.from_bytes(part[i : i + size], 'little'):0{2 * size}x}" for i in range(0, len(part), size)
        ]
        address = 0x7FFE00001000 + at
        said = {"at": address, "high": address >> 32, "low": address % 2**32, "letters": letters(part)}
        shown.append(line.format(**said, numbers=parted.join(numbers)))
    return "\n".join(shown) + "\n"


def signed(data: bytes) -> str:
    return ", ".join(str(byte - 256 if byte > 127 else byte) for byte in data)


def netty(data: bytes) -> str:
    head = "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |\n+--------+-----+\n"
    return head + "".join(f"|{at:08x}| {part.hex(' '):47} |{letters(part):16}|\n" for at, part in lines(data))


OF_PACKETS: Final[dict[str, Form]] = {
    "decimal": lambda data: ",".join(map(str, data)),
    "PowerShell": lambda data: "\r\n".join(map(str, data)),
    "Go": lambda data: f"[{' '.join(map(str, data))}]",
    "Rust": lambda data: f"let p: [u8; {len(data)}] = [{', '.join(f'{byte}u8' for byte in data)}];",
    "JSON of Node": lambda data: f'{{"type":"Buffer","data":[{",".join(map(str, data))}]}}',
    "YAML": lambda data: "".join(f"- {byte}\n" for byte in data),
    "Python's list": lambda data: f"bytes({[*map(hex, data)]})",
    "Java": lambda data: f"[{signed(data)}]",
    "Java's source": lambda data: f"byte[] p = {{ {', '.join(f'(byte) {byte:#x}' for byte in data)} }};",
    "Visual Basic": lambda data: f"Dim p() As Byte = {{{', '.join(f'&H{byte:X}' for byte in data)}}}",
    "Erlang": lambda data: f"<<{','.join(map(str, data))}>>",
    "printf %x": lambda data: " ".join(f"{byte:x}" for byte in data),
    "single digits with colons": lambda data: ":".join(f"{byte:x}" for byte in data),
    "PostgreSQL": lambda data: f"{BACKSLASH}x{data.hex()}",
    "SQL": lambda data: f"X'{data.hex()}'",
    "NSData": lambda data: f"<{data.hex(' ', 4)}>",
    "octal": lambda data: '"' + "".join(f"{BACKSLASH}{byte:03o}" for byte in data) + '"',
    "JSON's string": lambda data: json.dumps(data.decode("latin-1")),
    "JavaScript": lambda data: " + ".join(f"'{escaped(part)[1:-1]}'" for _, part in lines(data)),
    "C's string": lambda data: f"char p[] =\n{escaped(data)};",
    "gdb x/8xb": lambda data: debugger(data, 1, "{at:#x}:\t0x{numbers}", "\t0x"),
    "gdb with symbols": lambda data: debugger(data, 1, "{at:#x} <buffer+8>:\t0x{numbers}", "\t0x"),
    "gdb x/4xw": lambda data: debugger(data, 4, "{at:#x}:\t0x{numbers}", "\t0x"),
    "gdb, prompt and all": lambda data: f"(gdb) x/99xb p\n{debugger(data, 1, '{at:#x}:{numbers}', chr(9) + '0x')}"
    .replace(":", ":\t0x"),
    "lldb": lambda data: debugger(data, 1, "{at:#x}: {numbers}  {letters}"),
    "WinDbg db": lambda data: re.sub(
        r"(  (?:[0-9a-f]{2} ){7}[0-9a-f]{2}) (?=[0-9a-f]{2} )", r"\1-",
        debugger(data, 1, "{high:08x}`{low:08x}  {numbers}  {letters}"),
    ),
    "WinDbg dd": lambda data: debugger(data, 4, "{high:08x}`{low:08x}  {numbers}"),
    "IDA": lambda data: debugger(data, 1, ".data:{low:08X} {numbers}  {letters}"),
    "Netty": netty,
    "tcpdump": lambda data: "".join(
        f"\t0x{at:04x}:  {part.hex(' ', -2):39}  {letters(part).replace(' ', '.')}\n" for at, part in lines(data)
    ),
    "tshark's Follow": lambda data: "".join(
        f"{at:08X}  {part.hex(' '):47}  {letters(part[:8])} {letters(part[8:])}\n" for at, part in lines(data)
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", OF_PACKETS)
@given(st.binary(max_size=40))
def test_every_form_that_only_a_packet_tells_is_read_as_its_bytes(form: str, more: bytes) -> None:
    data = PACKET[:-4] + more
    data += bytes(-len(data) % 8)
    assert read_pasted(OF_PACKETS[form](data).encode(), "here") == data


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(line for number, line in enumerate(OF_PACKETS["gdb x/8xb"](PACKET).splitlines()) if number != 3),
        "\n".join(line for number, line in enumerate(FORMS["od -t x1"](PACKET).splitlines()) if number != 1),
        "".join(f"0x7ffe{at:04x}:\t" + "\t".join(map(str, part)) + "\n" for at, part in lines(PACKET, 8)),
        "".join(f"{at:07o} {' '.join(f'{byte:3}' for byte in part)}\n" for at, part in lines(PACKET)),
        '"\\020\\000\\003\\000LIOR", \'\\000\' <repeats 15 times>, "x"',
        "[16, 0, 3, 0, 76, 73, 79, 82, 1234, 0, 0]",
    ],
    ids=["gdb, torn", "od, torn", "gdb x/8ub", "od -t u1", "gdb's repeats", "a number that is not a byte"],
)  # fmt: skip
def test_a_margin_is_never_data_and_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"missing|not a byte|leaves out") as refusal:
        read_pasted(text.encode(), "here")
    assert "\n" not in str(refusal.value)


def test_dumps_behind_one_another_are_each_by_itself() -> None:
    text = xxd(PACKET) + "\nand then\n" + wireshark(PACKET)
    assert dumps_in(text.encode(), "here") == [PACKET, PACKET]


@given(
    st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=40)), min_size=1, max_size=6),
    st.sampled_from(["    ", "\t"]),
)
@example([(False, PACKET), (True, PACKET), (False, PACKET), (True, PACKET[:20])], "    ")
def test_of_a_conversation_that_was_followed_each_side_counts_for_itself(
    said: list[tuple[bool, bytes]], indent: str
) -> None:
    said = [(False, PACKET), *said]
    text, at = "", [0, 0]
    for answers, data in said:
        for begins, part in lines(data):
            shown = f"{at[answers] + begins:08x}  {part[:8].hex(' '):23}  {part[8:].hex(' '):23}   {letters(part)}\n"
            text += indent * answers + shown
        at[answers] += len(data)
    sides = [b"".join(data for side, data in said if side is answers) for answers in (False, True)]
    assert dumps_in(text.encode(), "here") == [side for side in sides if side]


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
        (b"{ 0x100 }", "not a byte"),
        (b"{ 16, 12345678901234567890 }", "not a byte"),
        (b"\"\\x10\\q\"", "not an escape"),
        (b"10 00\n*\n", r"od -v"),
        (b"  16   0  11   0  76  73  79  82\n*\n  60 200\n", r"od -v"),
        (b"   16    0   11    0   76   73   79   82\n*\n   60   -2\n", r"od -v"),
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
        b"'" * 2**18 + b"\\x10",
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


@pytest.mark.parametrize(
    "part",
    [b"1 2 ", b"10 c0 0b ", b"0x10, ", b"16, 192, ", b"(byte)1, ", b"'\\x10' ", b"- 1 "],
    ids=repr,
)
@pytest.mark.parametrize("before", [b"", b"0000: "], ids=["bare", "offset"])
def test_a_line_takes_a_small_multiple_of_its_size_in_memory(before: bytes, part: bytes) -> None:
    data = before + part * (2**20 // len(part))
    tracemalloc.start()
    with suppress(UsageError):
        read_pasted(data, "here")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 2**20
