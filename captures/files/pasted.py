r"""Reads pasted bytes: raw, or as text that a tool printed.

hex             Wireshark's hex stream, xxd -p, .NET's BitConverter; blanks, commas, colons, hyphens and 0x are
                ignored
hex dump        xxd, hexdump, hexdump -C, od, PowerShell's Format-Hex, Wireshark, tcpdump -X, debuggers: lines with an
                offset or an address, mostly with the bytes as letters at their end. Several dumps may
                follow each other, each beginning at 0; Wireshark's Follow TCP Stream indents the lines of the other
                side.
array           C, C#, Java or Go, as Wireshark and xxd -i write it: the values between braces
numbers         a list in other brackets or without any: PowerShell, Go, Rust, JSON; decimal from -128 up, or 0x
escaped string  C or Python: "\x10\xc0\x0b\0LIOR"
Base64          with line breaks or without

Raw packets contain control characters other than white space, and text does not, so the two can be told apart. The
base of the digits is not evident, so the first reading that contains a packet counts.
"""

from __future__ import annotations

import base64
import binascii
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate, chain, islice
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.wire import MAXIMUM_PACKET_SIZE, begins_stream

INPUT_LIMIT_BYTES: Final = 7 * MAXIMUM_PACKET_SIZE
"""The largest number of bytes to read.

The largest packet fits as a hex dump or an array; a whole capture does not fit, and is refused.
"""
FORMS: Final = (
    "hex, a hex dump of xxd, hexdump, od or Wireshark, an array in braces, an escaped string, or Base64"
)
_BOMS: Final = ((BOM_UTF8, "utf-8"), (BOM_UTF16_LE, "utf-16-le"), (BOM_UTF16_BE, "utf-16-be"))
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_SIGNATURE: Final = b"LIOR"
_PREFIX: Final = re.compile(r"\b0[xX]|^\\x|^[xX]'")
_SINGLE: Final = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F](?![0-9a-fA-F])")
_THREE: Final = re.compile(r"[0-9a-fA-F]{3}")
_HEX: Final = re.compile(r"[0-9a-fA-F\s:,-]*")
_NO_DIGIT: Final = re.compile(r"[\s:,-]+")
_LINE: Final = re.compile(
    r"([\s|]*)(?:\.?[0-9A-Za-z]{1,15}:(?=[0-9a-fA-F]{4}))?(?:0[xX])?"  # .data:00401000
    r"([0-9a-fA-F]{3,16}|[0-9a-fA-F]{1,8}`[0-9a-fA-F]{8})(?:\s*<[^<>]{1,200}>)?(:?)\|?(?:\s+(.*))?"
)
_GROUP: Final = re.compile(r"(?:0[xX])?((?:[0-9a-fA-F]{2}){1,8})(?![^\s|>])")
_MIDDLE: Final = re.compile(r"(?:[0-9a-fA-F]{2} ){7}[0-9a-fA-F]{2}(-)[0-9a-fA-F]{2} ")
_GAP: Final = re.compile(r"[ \t]{1,2}")
_ITEM: Final = re.compile(r"[^\s,]+")
_TOKEN: Final = re.compile(r"[^\s,;\"'()<>{}\[\]]+|[()<>{}\[\]]")
_CAST: Final = re.compile(r"\(\s*(?:s?byte|u?int8(?:_t)?|[iu]8|(?:un)?(?:signed )?char)\s*\)", re.IGNORECASE)
_OPENS: Final = re.compile(r"\(")
_BYTE: Final = re.compile(r"(?:(?:0[xX]|&H)([0-9a-fA-F]{1,2})|(-?[0-9]{1,3}))(?:u8)?")
_LONGER: Final = re.compile(r"(?:0[xX])?[0-9a-fA-F]{3,}:?|-?[0-9]+")
_ESCAPE: Final = re.compile(r"\\(?:x|u00)([0-9a-fA-F]{2})|\\([0-7]{1,3})|\\(.)|([^\\]+)")
_HAS_ESCAPE: Final = re.compile(r"\\(?:x|u00|[0-7])")
_BEGINS_QUOTED: Final = re.compile(r"""\s*b?["']""")
_STRING: Final = re.compile(r"\\.|[\"'\\]|[^\\\"']+")
_ESCAPES: Final = {**dict(zip("abtnvfr", range(7, 14), strict=True)), "\\": 92, "'": 39, '"': 34}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{4,}={0,2}(?:\r?\n[A-Za-z0-9+/_-]+={0,2})*")
_LINE_LIMIT: Final = 500_000
"""A dump of the largest packet has fewer lines than this."""
_LINE_GROUPS: Final = 64
"""A line of any dump has fewer groups than this."""
_LINE_REST: Final = 4_096
"""A dump has fewer characters than this after an offset."""
_PIECE: Final = 1 << 16
_SHORTEST_LIST: Final = 8
"""The smallest number of items that count as a list: enough for a packet's version and signature."""
_USUAL_BYTES: Final = 16
"""The number of bytes that a line is assumed to have if nothing shows it."""


def read_pasted(data: bytes, where: str) -> list[bytes]:
    """Return the bytes that `data` is or describes, one item per dump, in their order.

    Raises:
        UsageError: the data is too long, empty, or text without bytes; the error says what to do instead.
    """
    if len(data) > INPUT_LIMIT_BYTES:
        raise UsageError(
            f"{where} has more than {INPUT_LIMIT_BYTES:,} bytes, which is not a packet; give one packet's bytes"
        )
    if not data.strip():
        raise UsageError(f"{where} is empty; give one packet's bytes, as they are or in hex")
    text = _text_of(data)
    if text is None:
        return [data]
    if (dumps := _dumps(text, where)) is not None:
        return dumps
    first: bytes | None = None
    refusal: UsageError | None = None
    is_torn = re.search(r"^[ \t]*\*[ \t\r]*$", text, re.MULTILINE) is not None
    for read in (_hex, _array, _numbers, _escaped, _base64):
        if read is _numbers and is_torn:
            continue
        try:
            found = read(text, where)
        except UsageError as error:
            refusal = refusal or error
            continue
        if found is not None and (_SIGNATURE in found or begins_stream(found)):
            return [found]
        first = found if first is None else first
    if refusal is not None and first is None:
        raise refusal
    if first is not None or "\ufffd" in text:
        return [data if first is None else first]  # It may not be UTF-8 either.
    left_out = ", with what its * leaves out (od -v)" if is_torn else ""
    raise UsageError(f"{where} is text that says no bytes; give the bytes as they are, {FORMS}{left_out}")


def _text_of(data: bytes) -> str | None:
    """Return data as text; None if it is not text.

    U+FFFD replaces bytes that are not UTF-8, whatever their code page is.
    """
    for bom, codec in _BOMS:
        if data.startswith(bom):
            try:
                return data[len(bom) :].decode(codec)
            except UnicodeDecodeError:
                return None
    return None if _CONTROL.search(data) else data.decode("utf-8", "replace")


def _pieces(text: str, border: re.Pattern[str]) -> Iterator[str]:
    """Yield the text in pieces, each ending right before a `border`.

    A substitution over the whole text at once would take far more memory.
    """
    at = 0
    while at < len(text):
        found = border.search(text, at + _PIECE)
        end = len(text) if found is None else found.start()
        yield text[at:end]
        at = end


def _hex(text: str, where: str) -> bytes | None:
    plain = [_PREFIX.sub("", piece) for piece in _pieces(text.strip().strip("\"'<>;"), _NO_DIGIT)]
    if not all(map(_HEX.fullmatch, plain)):
        return None
    if not any(map(_THREE.search, plain)):
        plain = [_SINGLE.sub(r"0\g<0>", piece) for piece in plain]
    digits = "".join(_NO_DIGIT.sub("", piece) for piece in plain)
    try:
        return binascii.unhexlify(digits)
    except binascii.Error:
        raise UsageError(
            f"{where} has an odd number of hex digits ({len(digits)}): one is missing, or it is not hex"
        ) from None


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a dump: its offset as written, and the rest of the line.

    indent: the text before the offset.
    repeated: whether a * came before this line, which means that the previous line repeats up to here.
    """

    number: int
    indent: str
    offset: str
    colon: bool
    spaced: bool
    rest: str
    repeated: bool

    def groups(self) -> list[tuple[bytes, str]]:
        """Return each group of digits as bytes, with the text after it.

        Some groups may be letters that look like digits.
        """
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
        """Return the line's bytes: `size` of them if that is known, otherwise as many as its letters show.

        If the letters do not show how many there are, the likely number is assumed. If the line does not fit `size`,
        return no bytes.

        Args:
            swapped: whether the tool shows numbers of 16 bits or more, in little-endian order.
        """
        groups = self.groups()
        whole = b"".join(data[:: -1 if swapped else 1] for data, _ in groups)
        if size is None:
            return whole[: self._lettered(groups, whole) or self._usual(groups)]
        # The last number may be longer than the bytes that are left.
        longer = len(whole) - size
        fits = not longer or (swapped and size > 0 and 0 < longer < len(groups[-1][0]))
        return whole[:size] if fits or size == self._lettered(groups, whole) else b""

    def has_letters(self, *, swapped: bool) -> bool:
        """Whether the line's letters agree with its digits."""
        groups = self.groups()
        return self._lettered(groups, b"".join(data[:: -1 if swapped else 1] for data, _ in groups)) > 0

    def torn_from(self, other: _Line, *, swapped: bool) -> bool:
        """Whether this line's letters contradict its bytes, while the letters of `other` agree with the bytes of
        `other`.
        """
        groups = self.groups()
        says_something = bool(groups) and bool(groups[-1][1].strip())
        return says_something and other.has_letters(swapped=swapped) and not self.has_letters(swapped=swapped)

    def _lettered(self, groups: list[tuple[bytes, str]], whole: bytes) -> int:
        """Return how many bytes the line has according to its letters; 0 if they do not show it."""
        size = len(whole)
        for data, behind in reversed(groups):
            if (letters := behind.strip()) and _says(letters, whole[:size]):
                return size
            size -= len(data)
        return 0

    def _usual(self, groups: list[tuple[bytes, str]]) -> int:
        """Return how many bytes the line probably has, for use if nothing else shows it."""
        sizes = [*accumulate(len(data) for data, _ in groups)]
        if not sizes or not groups[-1][1].strip():
            return sizes[-1] if sizes else 0
        return max((size for size in sizes if size <= _USUAL_BYTES), default=sizes[0])


def _says(letters: str, data: bytes) -> bool:
    """Whether letters show these bytes.

    A byte without a letter of its own is shown as a dot, or as a letter of some code page. tcpdump prints a dot for a
    blank, and tshark puts a blank into the middle of a line.
    """
    shown = "".join(chr(byte) if 32 <= byte < 127 else "\0" for byte in data)
    for inside in (letters, letters[1:-1] if letters[0] + letters[-1] in ("||", "><") else ""):
        for said, meant in ((inside.strip(" "), shown.strip(" ")), (inside, shown.replace(" ", "\0"))):
            parted = len(said) == len(meant) + 1 and said[8:9] == " "
            shut = said[:8] + said[9:] if parted else said
            if meant and len(shut) == len(meant) and all(map(_may_be, shut, meant)):
                return True
    return False


def _may_be(said: str, meant: str) -> bool:
    return said == meant or (meant == "\0" and (said == "." or not said.isascii()))


def _lines(text: str) -> Iterator[_Line]:
    """Yield the lines that may belong to a dump."""
    repeated = False
    for number, line in _numbered(text):
        if line.strip() == "*":
            repeated = True
        elif match := _LINE.fullmatch(line):
            indent, offset, colon, rest = match.groups("")
            if middle := _MIDDLE.match(rest):
                rest = f"{rest[: middle.start(1)]} {rest[middle.end(1) :]}"  # As WinDbg separates them.
            if not rest.strip() or _GROUP.match(rest):
                spaced = line[match.end(3) :].startswith(("  ", "\t"))
                yield _Line(
                    number, indent, offset.replace("`", ""), bool(colon), spaced, rest[:_LINE_REST], repeated
                )
                repeated = False


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text one by one, because a list of all lines could be large."""
    at, number = 0, 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield number, text[at:end].rstrip("\r")
        at, number = end + 1, number + 1


def _dumps(text: str, where: str) -> list[bytes] | None:
    """Return the bytes of each hex dump; None if the text is not a dump because its offsets do not fit."""
    lines = [*islice(_lines(text), _LINE_LIMIT + 1)]
    if not any(line.rest for line in lines) or len(lines) > _LINE_LIMIT:
        return None
    first = lines[0]
    if len(lines) == 1 and _HEX.fullmatch(text) and not _sets_apart(first):
        return None
    numbers = first.rest[:2] in ("0x", "0X")
    swapped = (numbers or not first.colon) and all(
        len(data) > 1 for line in lines[:2] for data, _ in line.groups()[:1]
    )
    if not first.has_letters(swapped=swapped) and first.has_letters(swapped=not swapped):
        swapped = not swapped
    wrong: _Line | None = None
    ours = [line for line in lines if line.indent == first.indent]
    theirs = [line for line in lines if line.indent != first.indent]
    for sides in ([ours, theirs], [lines]) if theirs else ([lines],):
        for radix in (16, 8, 10):
            try:
                return [dump for side in sides for dump in _joined(side, radix, swapped=swapped)]
            except _TornError as torn:
                wrong = torn.line if len(sides) == 1 and wrong is None else wrong
    if wrong is None or not _is_dump(lines, swapped=swapped):
        return None
    raise UsageError(
        f"{where} is a hex dump with something missing: line {wrong.number} at offset {wrong.offset} does not fit to"
        " what stands before it; copy the dump whole, with bytes in hex (od -t x1, x/xb of gdb)"
    )


def _is_dump(lines: Sequence[_Line], *, swapped: bool) -> bool:
    """Whether the lines are certainly a dump.

    This is certain if an offset has a colon, if letters match the bytes, or if all offsets are equally wide, and wider
    than any group of digits.
    """
    if any(line.colon or line.has_letters(swapped=swapped) for line in lines):
        return True
    width = len(lines[0].offset)
    widest = max(2 * len(data) for line in lines for data, _ in line.groups())
    return len(lines) > 1 and width > max(4, widest) and all(len(line.offset) == width for line in lines)


def _sets_apart(line: _Line) -> bool:
    """Whether the first digits of a line are an offset rather than its first bytes."""
    return line.colon or line.spaced or len(line.groups()[0][0]) == 1


class _TornError(Exception):
    """A line whose offset does not match the bytes before it."""

    def __init__(self, line: _Line) -> None:
        super().__init__(line)
        self.line = line


def _joined(lines: Sequence[_Line], radix: int, *, swapped: bool) -> list[bytes]:
    """Return the bytes of all lines, one item per dump.

    Raises:
        _TornError: the offsets are not numbers of this radix, or do not count the bytes.
    """
    try:
        offsets = [int(line.offset, radix) for line in lines]
    except ValueError:
        raise _TornError(lines[0]) from None
    if offsets[0] and len(lines) == 1 and not lines[0].colon:
        raise _TornError(lines[0])
    dumps = [bytearray()]
    size = 0
    for index, line in enumerate(lines):
        # A dump that starts again is another dump, behind this one.
        following = lines[index + 1] if index + 1 < len(lines) and offsets[index + 1] else None
        span = offsets[index + 1] - offsets[index] if following is not None else 0
        if following is None or following.repeated:
            data = line.data(swapped=swapped)
            if line.torn_from(lines[0], swapped=swapped):
                raise _TornError(line)
        else:
            data = line.data(span, swapped=swapped)
        if following is not None:
            if not data or span < len(data) or span % len(data) or size + span > INPUT_LIMIT_BYTES:
                raise _TornError(following)
            data *= span // len(data)
        dumps[-1] += data
        size += len(data)
        if following is None and index + 1 < len(lines):
            dumps.append(bytearray())
    return [bytes(dump) for dump in dumps if dump]


def _array(text: str, where: str) -> bytes | None:
    if "{" not in text or _BEGINS_QUOTED.match(text):
        return None
    inside = _without_casts(text)
    data = bytearray()
    for braces in re.finditer(r"\{([^{}]*)\}", inside):
        for item in _ITEM.finditer(braces[1]):
            if (number := _number(item[0])) is None:
                raise UsageError(
                    f"{where} has an array with {quoted(item[0])}, which is not a byte; write it as 0x10"
                )
            data.append(number)
    return bytes(data) or None


def _numbers(text: str, where: str) -> bytes | None:
    """Return the bytes of all lists of numbers that are at least as long as the head of a packet."""
    data, run = bytearray(), bytearray()
    before = ""
    for token in chain(_TOKEN.finditer(_without_casts(text)), (None,)):
        word = "" if token is None else token[0]
        if (number := _number(word)) is not None:
            run.append(number)
            continue
        if word == "-":
            continue  # A list in YAML.
        if len(run) >= _SHORTEST_LIST:
            if _LONGER.fullmatch(before) or _LONGER.fullmatch(word):
                longer = before if _LONGER.fullmatch(before) else word
                raise UsageError(
                    f"{where} has numbers with {quoted(longer)}, which is not a byte; write them in hex"
                )
            data += run
        run.clear()
        before = word
    return bytes(data) or None


def _number(item: str) -> int | None:
    """Return the byte that a number, perhaps with a sign as in Java, stands for; None if it is not a byte."""
    found = _BYTE.fullmatch(item)
    if found is None:
        return None
    number = int(found[1], 16) if found[1] else int(found[2])
    return number & 0xFF if -128 <= number <= 0xFF else None


def _without_casts(text: str) -> str:
    """Return the text without casts and comments."""
    return "".join(_CAST.sub("", piece) for piece in _pieces(_without_comments(text), _OPENS))


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
    if not _HAS_ESCAPE.search(text):
        return None
    if "<repeats" in text:
        raise UsageError(
            f"{where} leaves out what <repeats: in gdb x/100xb shows bytes, or set print repeats 0"
        )
    data = bytearray()
    bare = not any(_is_quoted(line) for _, line in _numbered(text))
    for _, line in _numbered(text):
        for found in _ESCAPE.finditer(line.strip() if bare else _quoted(line)):
            if found[1]:
                data.append(int(found[1], 16))
            elif found[2]:
                data.append(int(found[2], 8) & 0xFF)
            elif found[4]:
                data += found[4].encode("latin-1", "replace")
            elif found[3] in _ESCAPES:
                data.append(_ESCAPES[found[3]])
            else:
                raise UsageError(
                    f"{where} has {quoted(found[0])}, which is not an escape for a byte; write it as \\x10"
                )
    return bytes(data)


def _is_quoted(line: str) -> bool:
    """Whether a backslash is between two quotes of the same kind."""
    return any(
        -1 < line.find("\\", line.find(quote) + 1) < line.rfind(quote) for quote in "\"'" if quote in line
    )


def _quoted(line: str) -> str:
    """Return the text between quotes."""
    kept = StringIO()
    inside = ""
    for found in _STRING.finditer(line):
        if found[0] == inside:
            inside = ""
        elif inside:
            kept.write(found[0])
        elif found[0] in ("'", '"'):
            inside = found[0]
    return kept.getvalue()


def _base64(text: str, where: str) -> bytes | None:
    """Return the bytes that the text decodes to if they begin a packet or a Ping; otherwise None.

    Much other text could be Base64, too.
    """
    text = text.strip().strip("\"';")
    if not _BASE64.fullmatch(text):
        return None
    digits = "".join(re.sub(r"[\s=]", "", piece) for piece in _pieces(text, _NO_DIGIT))
    digits = digits.replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except binascii.Error:
        return None
    return data if begins_stream(data) else None
