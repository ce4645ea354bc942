"""Layouts, and the rules in them.

A `Layout` is a construct Struct that knows its section of the specification and where each field begins, so
that a refusal names field, offset, value, limit and section. What stands in a layout serves three readers:
construct itself (reference.py), the generated codec (generated.py) and the analyst's view (lenient.py), all in wire/.

Each header starts on a 4-byte boundary of its packet, so padding follows from the position in the packet
alone.
"""

from __future__ import annotations

import io
from typing import Any

from construct import (
    ConstError,
    Construct,
    ConstructError,
    Container,
    Renamed,
    StreamError,
    Struct,
)

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.base.foreign import shown


class Fault(Exception):  # noqa: N818  (a fault becomes an error when its field is known)
    """What a part of a layout has against a value; the layout around it adds field, offset and section.

    `reading` is what an analyst may go on with; None when nothing after this place can be read.
    """

    def __init__(
        self, value: object, limit: str, *, field: str = "", part: str = "", reading: Any = None
    ) -> None:
        super().__init__(value, limit)
        self.value, self.limit, self.field, self.part, self.reading = value, limit, field, part, reading


class PacketStream(io.BytesIO):
    """Some bytes of a packet, which know where in the packet they stand."""

    def __init__(self, data: bytes = b"", start: int = 0) -> None:
        super().__init__(data)
        self.data = data
        self.start = start
        self.end = start + len(data)

    def tell(self) -> int:
        return self.start + super().tell()

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes, or a Fault before any of them is looked at; without a size, the rest."""
        left = len(self.data) - super().tell()
        if size is not None and size > left:
            raise Fault(f"{left} bytes", f"{size} bytes")
        return super().read(size)


def dotted(path: str, name: str) -> str:
    """construct's path of a field in the record's words: `user.destination_queue.count`."""
    return ".".join([*path.split(" -> ")[1:], name])


class Layout(Struct):
    """The fields of one header or packet, in order, and the section that lists them."""

    def __init__(self, section: str, *parts: Construct[Any, Any]) -> None:
        super().__init__(*parts)
        self.section = section

    def _scope(self, stream: Any, context: Any, building: bool) -> Any:
        return Container(
            _=context,
            _params=context._params,
            _parsing=not building,
            _building=building,
            _sizing=False,
            _io=stream,
            _offsets={},
        )

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        fields: Any = Container()
        scope = self._scope(stream, context, building=False)
        seen = context._params.get("seen")
        for part in self.subcons:
            name = part.name
            start = stream.tell()
            seen_before = len(seen) if seen is not None else 0
            if name:
                scope._offsets[name] = start
            try:
                value = part._parsereport(stream, scope, path)
            except Fault as fault:
                value = self._tell(fault, scope, path, name)
            except ConstError:
                size = stream.tell() - start
                raw = stream.getvalue()[start - stream.start :][:size]
                const: Any = bare(part)
                value = const.subcon.parse(raw)
                self._tell(Fault(value, f"{const.value:#x}", reading=value), scope, path, name)
            except StreamError as error:
                # construct's integers wrap the Fault that the stream raises.
                wrapped: Any = error.__context__
                self._tell(wrapped, scope, path, name)
            if not name:
                continue
            fields[name] = scope[name] = value
            if seen is not None and len(seen) == seen_before and stream.tell() > start:
                raw = stream.getvalue()[start - stream.start : stream.tell() - stream.start]
                seen.append((dotted(path, name), start, value, raw, self.section))
        return fields

    def _tell(self, fault: Fault, scope: Any, path: str, name: str | None) -> Any:
        field = fault.field or name or ""
        words = dotted(path, fault.part or field)
        error = WireFormatError(words, self._offset(field, scope), fault.value, fault.limit, self.section)
        faults = scope._params.get("faults")
        if faults is None or fault.reading is None:
            raise error from None
        faults.append(error)
        return fault.reading

    def _offset(self, field: str, scope: Any) -> int:
        """Where a field of this layout began, or one of a header inside it: `base.flags`."""
        name, _, inner = field.partition(".")
        start: int = scope._offsets[name]
        return start + bare(self._subcons[name]).offset_of(inner) if inner else start

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not isinstance(obj, dict):
            words = dotted(path, "")[:-1] or "the record"
            raise UsageError(
                f"{words} is {shown(repr(obj))}, which is no record for this place  {self.section}"
            )
        scope = self._scope(stream, context, building=True)
        scope.update(obj)
        for part in self.subcons:
            name = part.name
            value = obj.get(name) if name else None
            try:
                built = part._build(value, stream, scope, path)
            except Fault as fault:
                words = dotted(path, fault.part or fault.field or name or "")
                raise UsageError(
                    f"{words} is {shown(str(fault.value))}, must be {fault.limit}  {self.section}"
                ) from None
            except UsageError:
                raise
            except (ConstructError, TypeError, AttributeError, LookupError, ValueError) as error:
                words = dotted(path, name or "")
                raise UsageError(
                    f"{words} is {shown(repr(value))}, which does not fit its field  {self.section}"
                ) from error
            if name:
                scope[name] = built
        return scope

    def offset_of(self, name: str) -> int:
        """Where a field begins, counted from the layout's first byte: the size of all before it."""
        offset = 0
        for part in self.subcons:
            if part.name == name:
                return offset
            offset += part.sizeof()
        raise KeyError(name)


def bare(part: Any) -> Any:
    """A part without its name."""
    return part.subcon if isinstance(part, Renamed) else part


class Must(Construct):  # type: ignore[type-arg]
    """A rule about a field that stands before it: what does not hold is refused, read or written.

    Args:
        field: of the same layout, or of a header inside it (`base.flags`); its offset is reported.
        condition: a `this` expression.
        limit: in words, what would have been right.
        part: a part of the field that has a name of its own, such as a few bits of a flag word.
        value: of that part, or a `this` expression for it.
        is_last: where it is broken nothing behind it is read, by an analyst either.
    """

    def __init__(
        self,
        field: str,
        condition: Any,
        limit: str,
        *,
        part: str = "",
        value: Any = None,
        is_last: bool = False,
    ) -> None:
        super().__init__()
        self.field, self.condition, self.limit, self.part, self.value = field, condition, limit, part, value
        self.is_last = is_last
        self.flagbuildnone = True

    def _parse(self, stream: Any, context: Any, path: str) -> bool:
        if not self.condition(context):
            value = self.value if self.value is not None else context[self.field]
            value = value(context) if callable(value) else value
            reading = None if self.is_last else False
            raise Fault(value, self.limit, field=self.field, part=self.part, reading=reading)
        return True

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self._parse(stream, context, path)

    def _sizeof(self, context: Any, path: str) -> int:
        return 0
