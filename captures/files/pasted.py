r"""Bytes as people have them at hand: as they are, or as text from which they were copied.

hex             Wireshark's hex stream, xxd -p, .NET's BitConverter; blanks, commas, colons, hyphens and 0x count for
                nothing
hex dump        xxd, hexdump, hexdump -C, od, PowerShell's Format-Hex, Wireshark: lines with an offset, and mostly with
                the letters at their end. Of several dumps, each from 0 on, one follows the other.
array           of C, C# or Go, as Wireshark and xxd -i write it: what stands in braces
escaped string  of C or Python: "\x10\xc0\x0b\0LIOR"
Base64          with line breaks or without

Every packet has control characters. Text has none but white space, and is known by that.
"""

from __future__ import annotations

import base64
import binascii
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.wire import MAXIMUM_PACKET_SIZE, begins_stream

INPUT_LIMIT_BYTES: Final = 7 * MAXIMUM_PACKET_SIZE
"""The largest packet fits as a hex dump or an array; a whole capture does not, and is refused by name."""
FORMS: Final = (
    "hex, a hex dump of xxd, hexdump, od or Wireshark, an array in braces, an escaped string, or Base64"
)
_BOMS: Final = ((BOM_UTF8, "utf-8"), (BOM_UTF16_LE, "utf-16-le"), (BOM_UTF16_BE, "utf-16-be"))
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_PREFIX: Final = re.compile(r"\b0[xX]")
_HEX: Final = re.compile(r"[0-9a-fA-F\s:,-]*")
_NO_DIGIT: Final = re.compile(r"[\s:,-]")
_LINE: Final = re.compile(r"\s*(?:0[xX])?([0-9a-fA-F]{3,16})(:?)(?:\s+(.*))?")
_GROUP: Final = re.compile(r"((?:[0-9a-fA-F]{2}){1,8})(?![^\s|>])")
_GAP: Final = re.compile(r"[ \t]{1,2}")
_ITEM: Final = re.compile(r"[^\s,]+")
_BYTE: Final = re.compile(r"0[xX][0-9a-fA-F]{1,2}|[0-9]{1,3}")
_ESCAPE: Final = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)|([^\\]+)")
_ESCAPES: Final = {**dict(zip("abtnvfr", range(7, 14), strict=True)), "0": 0, "\\": 92, "'": 39, '"': 34}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{4,}={0,2}(?:\r?\n[A-Za-z0-9+/_-]+={0,2})*")
_LINE_LIMIT: Final = 500_000
"""More lines than the dump of the largest packet has."""
_LINE_GROUPS: Final = 64
"""More groups than any dump has in a line."""
_USUAL_BYTES: Final = 16
"""How many bytes a line has where nothing tells."""


def read_pasted(data: bytes, where: str) -> bytes:
    """The bytes that `data` is, or says.

    Raises:
        UsageError: it is too long, empty, or text that says none; the line says what is wrong and what to do.
    """
    if len(data) > INPUT_LIMIT_BYTES:
        raise UsageError(
            f"{where} has more than {INPUT_LIMIT_BYTES:,} bytes, which is no packet; give one packet's bytes"
        )
    if not data.strip():
        raise UsageError(f"{where} is empty; give one packet's bytes, as they are or in hex")
    text = _text_of(data)
    if text is None:
        return data
    for read in (_dump, _hex, _array, _escaped, _base64):
        if (found := read(text, where)) is not None:
            return found
    if "\ufffd" in text:
        return data  # It is no UTF-8 either.
    left_out = (
        ", with what its * leaves out (od -v)" if re.search(r"^\*[ \t\r]*$", text, re.MULTILINE) else ""
    )
    raise UsageError(f"{where} is text that says no bytes; give the bytes as they are, {FORMS}{left_out}")


def _text_of(data: bytes) -> str | None:
    """The text that it is; with U+FFFD for what is not UTF-8, as letters in a dump may be of any codepage."""
    for bom, codec in _BOMS:
        if data.startswith(bom):
            try:
                return data[len(bom) :].decode(codec)
            except UnicodeDecodeError:
                return None
    return None if _CONTROL.search(data) else data.decode("utf-8", "replace")


def _hex(text: str, where: str) -> bytes | None:
    plain = _PREFIX.sub("", text)
    if not _HEX.fullmatch(plain):
        return None
    digits = _NO_DIGIT.sub("", plain)
    try:
        return binascii.unhexlify(digits)
    except binascii.Error:
        raise UsageError(f"{where} has an odd number of hex digits ({len(digits)}); one is missing") from None


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a dump: its offset as it stands there, and what stands behind it.

    repeated: whether a * stood before it: the line before it comes again until here.
    """

    number: int
    offset: str
    colon: bool
    spaced: bool
    rest: str
    repeated: bool

    def groups(self) -> list[tuple[bytes, str]]:
        """The groups of digits, as bytes, and what stands behind each. Some may be letters that look like digits."""
        found: list[tuple[bytes, str]] = []
        at = 0
        while len(found) < _LINE_GROUPS and (group := _GROUP.match(self.rest, at)):
            found.append((bytes.fromhex(group[1]), self.rest[group.end() :]))
            gap = _GAP.match(self.rest, group.end())
            if gap is None:
                break
            at = gap.end()
        return found

    def data(self, size: int | None = None, *, swapped: bool) -> bytes:
        """Its bytes: `size` of them if that is known, else as many as its letters say.

        Args:
            swapped: the tool shows numbers of 16 bits or more.
        """
        groups = self.groups()
        whole = b"".join(data[:: -1 if swapped else 1] for data, _ in groups)
        if size is None:
            return whole[: self._lettered(groups, whole) or self._usual(groups)]
        # The last of the numbers may be longer than what is left of the bytes.
        longer = len(whole) - size
        fits = not longer or (swapped and size > 0 and 0 < longer < len(groups[-1][0]))
        return whole[:size] if fits or size == self._lettered(groups, whole) else b""

    def has_letters(self, *, swapped: bool) -> bool:
        """Whether letters say the same as the digits."""
        groups = self.groups()
        return self._lettered(groups, b"".join(data[:: -1 if swapped else 1] for data, _ in groups)) > 0

    def torn_from(self, other: _Line, *, swapped: bool) -> bool:
        """Whether its letters say other bytes than it has, while those of another line say the same."""
        groups = self.groups()
        says_something = bool(groups) and bool(groups[-1][1].strip())
        return says_something and other.has_letters(swapped=swapped) and not self.has_letters(swapped=swapped)

    def _lettered(self, groups: list[tuple[bytes, str]], whole: bytes) -> int:
        """How many bytes it has by its letters; 0 if these say nothing."""
        size = len(whole)
        for data, behind in reversed(groups):
            if (letters := behind.strip()) and _says(letters, whole[:size]):
                return size
            size -= len(data)
        return 0

    def _usual(self, groups: list[tuple[bytes, str]]) -> int:
        """How many bytes it has where nothing tells."""
        sizes = [*accumulate(len(data) for data, _ in groups)]
        if not sizes or not groups[-1][1].strip():
            return sizes[-1] if sizes else 0
        return max((size for size in sizes if size <= _USUAL_BYTES), default=sizes[0])


def _says(letters: str, data: bytes) -> bool:
    """Whether letters are those of some bytes; for one that is none there is a dot, or a letter of some codepage."""
    shown = "".join(chr(byte) if 32 <= byte < 127 else "\0" for byte in data)
    for inside in (letters, letters[1:-1] if letters[0] + letters[-1] in ("||", "><") else ""):
        said, meant = inside.strip(" "), shown.strip(" ")
        if meant and len(said) == len(meant) and all(map(_may_be, said, meant)):
            return True
    return False


def _may_be(said: str, meant: str) -> bool:
    return said == meant or (meant == "\0" and (said == "." or not said.isascii()))


def _lines(text: str) -> Iterator[_Line]:
    """The lines that may be those of a dump."""
    repeated = False
    for number, line in _numbered(text):
        if line.strip() == "*":
            repeated = True
        elif match := _LINE.fullmatch(line):
            rest = match[3] or ""
            if not rest.strip() or _GROUP.match(rest):
                spaced = line[match.end(2) :].startswith(("  ", "\t"))
                yield _Line(number, match[1], bool(match[2]), spaced, rest, repeated)
                repeated = False


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text, one by one, as a list of all could be large."""
    at, number = 0, 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield number, text[at:end].rstrip("\r")
        at, number = end + 1, number + 1


def _dump(text: str, where: str) -> bytes | None:
    """What a hex dump says; None if it is none, as its offsets do not count what stands there."""
    lines = [*islice(_lines(text), _LINE_LIMIT + 1)]
    if not any(line.rest for line in lines) or len(lines) > _LINE_LIMIT:
        return None
    first = lines[0]
    if len(lines) == 1 and _HEX.fullmatch(text) and not _sets_apart(first):
        return None
    swapped = not first.colon and all(len(data) > 1 for line in lines[:2] for data, _ in line.groups()[:1])
    if not first.has_letters(swapped=swapped) and first.has_letters(swapped=not swapped):
        swapped = not swapped
    wrong: _Line | None = None
    for radix in (16, 8, 10):
        try:
            return _joined(lines, radix, swapped=swapped)
        except _TornError as torn:
            wrong = wrong or torn.line
    if wrong is None or not any(line.colon or line.has_letters(swapped=swapped) for line in lines):
        return None
    raise UsageError(
        f"{where} is a hex dump with something missing: line {wrong.number} at offset {wrong.offset} does not fit to"
        " what stands before it; copy the dump whole"
    )


def _sets_apart(line: _Line) -> bool:
    """Whether the first digits of a line are an offset, and not the first of its bytes."""
    return line.colon or line.spaced or len(line.groups()[0][0]) == 1


class _TornError(Exception):
    """A line whose offset does not count what stands before it."""

    def __init__(self, line: _Line) -> None:
        super().__init__(line)
        self.line = line


def _joined(lines: Sequence[_Line], radix: int, *, swapped: bool) -> bytes:
    """The bytes of all lines.

    Raises:
        _TornError: the offsets are no numbers of this radix, or do not count them.
    """
    try:
        offsets = [int(line.offset, radix) for line in lines]
    except ValueError:
        raise _TornError(lines[0]) from None
    if offsets[0] and len(lines) == 1 and not lines[0].colon:
        raise _TornError(lines[0])
    whole = bytearray()
    for index, line in enumerate(lines):
        # A dump that begins again is another one, behind this one.
        following = lines[index + 1] if index + 1 < len(lines) and offsets[index + 1] else None
        span = offsets[index + 1] - offsets[index] if following is not None else 0
        if following is None or following.repeated:
            data = line.data(swapped=swapped)
            if line.torn_from(lines[0], swapped=swapped):
                raise _TornError(line)
        else:
            data = line.data(span, swapped=swapped)
        if following is not None:
            if not data or span < len(data) or span % len(data) or len(whole) + span > INPUT_LIMIT_BYTES:
                raise _TornError(following)
            data *= span // len(data)
        whole += data
    return bytes(whole)


def _array(text: str, where: str) -> bytes | None:
    if "{" not in text:
        return None
    inside = _without_comments(text)
    data = bytearray()
    for braces in re.finditer(r"\{([^{}]*)\}", inside):
        for item in _ITEM.finditer(braces[1]):
            if not _BYTE.fullmatch(item[0]) or (number := _number(item[0])) > 0xFF:
                raise UsageError(
                    f"{where} has an array with {quoted(item[0])}, which is no byte; write it as 0x10"
                )
            data.append(number)
    return bytes(data) or None


def _number(item: str) -> int:
    return int(item, 16) if item[:2] in ("0x", "0X") else int(item)


def _without_comments(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (start := text.find("/*", at)) >= 0:
        kept.append(text[at:start])
        end = text.find("*/", start + 2)
        at = len(text) if end < 0 else end + 2
    kept.append(text[at:])
    return re.sub(r"//[^\n]*", "", "".join(kept))


def _escaped(text: str, where: str) -> bytes | None:
    if "\\x" not in text:
        return None
    data = bytearray()
    for _, line in _numbered(text):
        inside = line.strip()
        if quotes := [quote for quote in "\"'" if inside.count(quote) > 1]:
            quote = min(quotes, key=inside.index)
            inside = inside[inside.index(quote) + 1 : inside.rindex(quote)]
        for found in _ESCAPE.finditer(inside):
            if found[1]:
                data.append(int(found[1], 16))
            elif found[3]:
                data += found[3].encode("latin-1", "replace")
            elif found[2] in _ESCAPES:
                data.append(_ESCAPES[found[2]])
            else:
                raise UsageError(
                    f"{where} has {quoted(found[0])}, which is no escape for a byte; write it as \\x10"
                )
    return bytes(data)


def _base64(text: str, where: str) -> bytes | None:
    """Much text could be Base64, so that only what begins a packet or a Ping is."""
    if not _BASE64.fullmatch(text.strip()):
        return None
    digits = re.sub(r"[\s=]", "", text).replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except binascii.Error:
        return None
    return data if begins_stream(data) else None
