"""The parts of layouts, in addition to construct's integers: texts, padding, choices and lists.

No part reads beyond the available bytes. A part raises a Fault for a value that it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from construct import Bytes, Construct, Container, SizeofError, Subconstruct
from construct.expr import FuncPath

from mqproto.base.errors import WireFormatError
from mqproto.base.foreign import quoted
from mqproto.wire.schema.layout import Layout
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.stream import NUL, Fault, Onlooker, PacketStream


class Octets(Bytes):
    """A given number of bytes. It accepts only bytes, whereas construct's own Bytes also takes an integer."""

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        size = self.length(context) if callable(self.length) else self.length
        data: bytes = stream.read(size)
        return data

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        size = self.length(context) if callable(self.length) else self.length
        if not isinstance(obj, bytes | bytearray) or len(obj) != size:
            raise Fault(repr(obj), f"{size} bytes")
        stream.write(obj)
        return obj


class GuidOctets(Octets):
    """The sixteen bytes of a GUID."""

    def __init__(self) -> None:
        super().__init__(16)


class Holding(Octets):
    """Bytes that may contain a record. A queue manager sees bytes; an analyst sees the record's fields.

    If they do not contain a record after all, the analyst sees the bytes, and the packet has no fault.
    """

    def __init__(self, length: Any, record: Record[Any]) -> None:
        super().__init__(length)
        self.held = record

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        start = stream.tell()
        data = super()._parse(stream, context, path)
        seen = stream.onlooker.seen
        if seen is not None and data:
            inner: list[Any] = []
            part = PacketStream(data, start, Onlooker(seen=inner))
            try:
                self.held.layout._parse(part, context, path)
            except WireFormatError:
                return data
            if part.tell() == part.end:
                seen += inner
        return data


class Text(Construct):  # type: ignore[type-arg]
    """UTF-16 text that ends with its only NUL. `size` is in bytes, with the NUL; a size of 0 means None.

    Unpaired surrogates are accepted, so any text survives the round trip.
    """

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = size

    def _parse(self, stream: Any, context: Any, path: str) -> str | None:
        size = self.size(context)
        if not size:
            return None
        # An odd size has been refused already, but an analyst may read on.
        text: str = stream.read(size)[: size & ~1].decode("utf-16-le", "surrogatepass")
        if text.find("\0") != len(text) - 1:
            raise Fault(quoted(text), "text that ends with its only NUL", reading=text)
        return text[:-1]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(wide(obj))
        return obj


class TerminatedText(Construct):  # type: ignore[type-arg]
    """UTF-16 text up to the first NUL, which must be within the window."""

    def _parse(self, stream: Any, context: Any, path: str) -> str:
        text: str = stream.until_nul()[: -len(NUL)].decode("utf-16-le", "surrogatepass")
        return text

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not isinstance(obj, str):
            raise Fault(repr(obj), "text")
        stream.write(wide(obj))
        return obj


class Fits(Construct):  # type: ignore[type-arg]
    """A rule about a size that came earlier in a header: the packet must have that many bytes left.

    After a wrong size, nothing more is read. The limit is PacketSize, so a packet that is cut off does not break the
    rule.

    Args:
        counted: the field of the same layout that has the size.
        unit: the number of bytes for each unit of the size.
        known_as: the name by which packets that break this rule are known.
    """

    def __init__(self, counted: str, unit: int, known_as: str) -> None:
        super().__init__()
        self.counted, self.unit, self.known_as = counted, unit, known_as
        self.flagbuildnone = True

    def _parse(self, stream: Any, context: Any, path: str) -> bool:
        count = context[self.counted]
        left = max(stream.end, context._["base"].packet_size) - stream.tell()
        if (size := count * self.unit) > left:
            wraps = f"in 32 bits {size:#x} is {size % 2**32}" if size >= 2**32 else "it lies"
            limit = (
                f"at most {left // self.unit:#x}, as {left} bytes are left; {wraps}, as in {self.known_as}"
            )
            raise Fault(count, limit, field=self.counted)
        return True

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        return None


class Pad4(Construct):  # type: ignore[type-arg]
    """Bytes up to the next 4-byte boundary of the packet. They may have any values and mean nothing.

    Building uses the record's padding if it has the right size, and zeros otherwise.
    """

    if_missing = b""

    def __init__(self) -> None:
        super().__init__()
        self.flagbuildnone = True

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        data: bytes = stream.read(-stream.tell() & 3)
        return data

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(fitted(obj, -stream.tell() & 3))
        return obj


class PaddedRest(Construct):  # type: ignore[type-arg]
    """The rest of a window. When it is built, None stands for zeros up to the next 4-byte boundary."""

    def __init__(self) -> None:
        super().__init__()
        self.flagbuildnone = True

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        data: bytes = stream.read()
        return data

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(bytes(-stream.tell() & 3) if obj is None else obj)
        return obj


class Absent(Construct):  # type: ignore[type-arg]
    """An absent part: it takes no bytes, and is None in the record."""

    def __init__(self) -> None:
        super().__init__()
        self.flagbuildnone = True

    def _parse(self, stream: Any, context: Any, path: str) -> None:
        return None

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is not None:
            raise Fault(repr(obj), "None, as the flags announce nothing here")

    def _sizeof(self, context: Any, path: str) -> int:
        return 0


class When(Construct):  # type: ignore[type-arg]
    """A part that is present if and only if a flag is set. If it is absent, it is None in the record."""

    if_missing = None

    def __init__(self, condition: Any, part: Any) -> None:
        super().__init__()
        self.condition, self.part = condition, part

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return self.part._parsereport(stream, context, path) if self.condition(context) else None

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not self.condition(context):
            if obj is not None:
                raise Fault(f"a {type(obj).__name__}", "None, as the flags announce nothing here")
            return None
        if obj is None:
            raise Fault("None", "present, as the flags announce it")
        return self.part._build(obj, stream, context, path)


class OneOf(Construct):  # type: ignore[type-arg]
    """One of several parts. A few bits select it."""

    def __init__(self, choice: Any, cases: dict[int, Any], if_missing: Any = None) -> None:
        super().__init__()
        self.choice, self.cases, self.if_missing = choice, cases, if_missing

    def _case(self, context: Any) -> Any:
        if (choice := self.choice(context)) not in self.cases:
            raise Fault(choice, "one of " + ", ".join(map(str, self.cases)))
        return self.cases[choice]

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return self._case(context)._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        case = self._case(context)
        if obj is None and not isinstance(case, Absent):
            raise Fault("None", "a queue name, as the flags announce one")
        return case._build(obj, stream, context, path)


class Single(Subconstruct):  # type: ignore[type-arg]
    """A layout with only one independent field; the other fields follow from that."""

    def __init__(self, name: str, layout: Layout) -> None:
        super().__init__(layout)
        self.layout = layout
        self.field = name

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return self.subcon._parsereport(stream, context, path)[self.field]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not isinstance(obj, str):
            raise Fault(repr(obj), "text")
        self.subcon._build(Container({self.field: obj}), stream, context, path)
        return obj

    def _actualsize(self, stream: Any, context: Any, path: str) -> int:
        return self.layout._actualsize(stream, context, path)


class Window(Subconstruct):  # type: ignore[type-arg]
    """A part that may not read beyond `size` bytes."""

    def __init__(self, size: Any, part: Construct[Any, Any]) -> None:
        super().__init__(part)
        self.size = size

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        start = stream.tell()
        inside = PacketStream(stream.read(self.size(context)), start, stream.onlooker)
        return self.subcon._parsereport(inside, context, path)

    def _sizeof(self, context: Any, path: str) -> int:
        raise SizeofError(path=path)


class Repeated(Subconstruct):  # type: ignore[type-arg]
    """A part that occurs `count` times in succession.

    A caller that needs only the text of a refusal gives its onlooker a function `skip(part, at, end)`, which is about
    ten times as fast as `construct`. It returns the end of a valid part that begins at `at`, or -1 if the part is
    invalid. `end` is the end of the window.
    """

    def __init__(self, count: Any, part: Construct[Any, Any]) -> None:
        super().__init__(part)
        self.count = count

    def _parse(self, stream: Any, context: Any, path: str) -> list[Any]:
        read: Callable[..., Any] = self.subcon._parsereport
        skip = stream.onlooker.skip
        items = []
        for index in range(self.count(context)):
            if skip is not None:
                at = stream.tell()
                after = skip(self.subcon, at, stream.end)
                if after >= 0:
                    stream.read(after - at)
                    continue
            items.append(read(stream, context, f"{path}[{index}]"))
        return items

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        for index, item in enumerate(obj):
            self.subcon._build(item, stream, context, f"{path}[{index}]")
        return obj

    def _sizeof(self, context: Any, path: str) -> int:
        raise SizeofError(path=path)


class EncodedSize:
    """For `this` expressions: returns the size in bytes of a value whose part begins on a 4-byte boundary."""

    def __init__(self, part: Construct[Any, Any]) -> None:
        self.part = part

    def __call__(self, value: Any) -> int:
        return len(self.part.build(value))


def fitted(padding: bytes, size: int) -> bytes:
    """Return the padding as it was read if it still fits; otherwise return zeros."""
    return padding if len(padding) == size else bytes(size)


def wide(text: str | None) -> bytes:
    """Return a text as it is on the wire, including its NUL; no bytes for None."""
    if text is None:
        return b""
    if "\0" in text:
        raise Fault(repr(text), "text without NUL")
    return text.encode("utf-16-le", "surrogatepass") + NUL


def wide_size(text: str | None) -> int:
    """Return the number of bytes that a text has on the wire, including its NUL."""
    return len(wide(text))


wide_size_ = FuncPath(wide_size)


def is_one_of(value: Any, *allowed: int) -> Any:
    """Return a `this` expression that says whether a small number is one of these."""
    return (sum(1 << each for each in allowed) >> value) & 1
