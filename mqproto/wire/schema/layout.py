"""Layouts, and the rules in them.

A `Layout` is a construct Struct that knows its section of the specification and the offset of each field. So a refusal
names the field, offset, value, limit and section. A layout serves three readers, all in wire/: construct itself
(reference.py), the generated codec (generated.py), and the analyst's view (lenient.py).

A layout reads any stream, and counts offsets from its own first byte. Each header starts on a 4-byte boundary of its
packet, so the padding depends only on the position in the packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from construct import (
    Const,
    ConstError,
    Construct,
    ConstructError,
    Container,
    GreedyBytes,
    Rebuild,
    Renamed,
    StreamError,
    Struct,
    Subconstruct,
)

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.base.foreign import shown
from mqproto.wire.schema.stream import Fault, ForeignStream, PacketStream

if TYPE_CHECKING:
    Whole = Construct[Container[Any], Any]
    Base = Subconstruct[Any, Any, Container[Any], Any]
else:
    Whole, Base = Construct, Subconstruct

TOP: Final = "(layout)"
"""The path of the outermost layout, which `standing_at` replaces with the path of the construct around it."""


class ParseError(WireFormatError, ConstructError):
    """A layout refuses bytes.

    `path` is construct's name for the place, as in `(parsing) -> header -> flags`. `offset` counts from the first byte
    of the outermost layout.
    """

    path: str | None = None


class MisuseError(UsageError, ConstructError):
    """A value is missing, or is one that a layout cannot write. `path` is the same as in a ParseError."""

    path: str | None = None


@contextmanager
def standing_at(path: str) -> Iterator[None]:
    """Replace TOP in the path of a layout's errors with the path of the caller's construct."""
    try:
        yield
    except (ParseError, MisuseError) as error:
        error.path = " -> ".join([path, *(error.path or "").split(" -> ")[1:]])
        raise


def plain(value: Any) -> Any:
    """Turn records, dicts and lists into construct's containers, recursively."""
    if isinstance(value, dict):
        return Container({name: plain(each) for name, each in value.items()})
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if names := getattr(value, "__dataclass_fields__", ()):
        return Container({name: plain(getattr(value, name)) for name in names})
    return value


def found(fields: Any, *names: str) -> Any:
    """Return the value under these nested names; None if there is none."""
    for name in names:
        fields = fields.get(name) if isinstance(fields, dict) else None
    return fields


def dotted(path: str, name: str) -> str:
    """Turn construct's path of a field into dotted names of the record's fields.

    An example is `user.destination_queue.count`.
    """
    return ".".join([*path.split(" -> ")[1:], name])


class Anywhere(Whole):
    """A construct that may be in any stream and counts offsets from its own first byte.

    `_read` and `_write` do the work, on a PacketStream.
    """

    _read: Any
    _write: Any

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        if isinstance(stream, PacketStream):
            return self._read(stream, context, path)
        with standing_at(path):
            return self._read(ForeignStream(stream), context, TOP)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if isinstance(stream, PacketStream):
            return self._write(obj, stream, context, path)
        own = PacketStream()
        with standing_at(path):
            built = self._write(plain(obj), own, context, TOP)
        GreedyBytes._build(own.getvalue(), stream, context, path)
        return built

    def _actualsize(self, stream: Any, context: Any, path: str) -> int:
        start: int = stream.tell()
        self._parse(stream, context, path)
        size: int = stream.tell() - start
        stream.seek(start)
        return size

    # construct would compile the behaviour of a Struct, not that of a layout.
    def _emitparse(self, code: Any) -> Any:
        raise NotImplementedError

    _emitbuild = _emitparse


class Layout(Anywhere, Struct):
    """The fields of one header or packet, in order, and the section of the specification that lists them."""

    def __init__(self, section: str, *parts: Construct[Any, Any]) -> None:
        super().__init__(*parts)
        self.section = section

    def _scope(self, stream: Any, context: Any) -> Any:
        return Container(_=context, _params=context._params, _io=stream, _offsets={})

    def _read(self, stream: PacketStream, context: Any, path: str) -> Any:
        fields: Any = Container()
        scope = self._scope(stream, context)
        seen = stream.onlooker.seen
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
                const: Any = bare(part)
                value = const.subcon.parse(stream.since(start))
                self._tell(Fault(value, f"{const.value:#x}", reading=value), scope, path, name)
            except StreamError as error:
                # construct's integers wrap the Fault that the stream raises.
                wrapped: Any = error.__context__
                if not isinstance(wrapped, Fault):
                    raise
                self._tell(wrapped, scope, path, name)
            except KeyError as lacking:
                what = f"needs {lacking.args[0]} of what stands around it: parse that, or pass {lacking.args[0]}="
                raise self._misuse(path, name, what) from None
            if not name:
                continue
            fields[name] = scope[name] = value
            if seen is not None and len(seen) == seen_before and stream.tell() > start:
                seen.append((dotted(path, name), start, value, stream.since(start), self.section))
        return fields

    def _tell(self, fault: Fault, scope: Any, path: str, name: str | None) -> Any:
        field = fault.field or name or ""
        words = dotted(path, fault.part or field)
        error = ParseError(words, self._offset(field, scope), fault.value, fault.limit, self.section)
        error.path = f"{path} -> {field}"
        faults = scope._io.onlooker.faults
        if faults is None or fault.reading is None:
            raise error from None
        faults.append(error)
        return fault.reading

    def _misuse(self, path: str, name: str | None, what: str) -> MisuseError:
        words = dotted(path, name) if name else dotted(path, "")[:-1] or "the record"
        error = MisuseError(f"{words} {what}  {self.section}")
        error.path = f"{path} -> {name}" if name else path
        return error

    def _offset(self, field: str, scope: Any) -> int:
        """Return the offset of a field of this layout, or of a field of a header inside it (`base.flags`)."""
        name, _, inner = field.partition(".")
        start: int = scope._offsets[name]
        return start + bare(self._subcons[name]).offset_of(inner) if inner else start

    def _write(self, obj: Any, stream: PacketStream, context: Any, path: str) -> Any:
        if not isinstance(obj, dict):
            raise self._misuse(path, None, f"is {shown(repr(obj))}, which is not a record for this place")
        scope = self._scope(stream, context)
        scope.update(obj)
        for part in self.subcons:
            name, inner = part.name, bare(part)
            value = obj.get(name, getattr(inner, "if_missing", None)) if name else None
            if name and name not in obj and not part.flagbuildnone and not hasattr(inner, "if_missing"):
                raise self._misuse(path, name, "is missing")
            try:
                if isinstance(inner, (Const, Rebuild)):
                    built = self._follows(part, value, stream, scope, path)
                else:
                    built = part._build(value, stream, scope, path)
            except Fault as fault:
                words = fault.part or fault.field or name
                what = f"is {shown(str(fault.value))}, must be {fault.limit}"
                raise self._misuse(path, words, what) from None
            except UsageError:
                raise
            except (ConstructError, TypeError, AttributeError, LookupError, ValueError) as error:
                what = f"is {shown(repr(value))}, which does not fit its field"
                raise self._misuse(path, name, what) from error
            if name:
                scope[name] = built
        return scope

    def _follows(self, part: Any, given: Any, stream: PacketStream, scope: Any, path: str) -> Any:
        """Write a constant, or a value that follows from other fields. If a value is given, it must agree."""
        name, inner = part.name, bare(part)
        try:
            built = inner._build(None, stream, scope, path)
        except KeyError as lacking:
            if lacking.args[0] != name:
                raise self._misuse(path, lacking.args[0], "is missing") from None
            if given is None:
                what = f"follows from what stands around it: build that, or pass {name}="
                raise self._misuse(path, name, what) from None
            return inner.subcon._build(given, stream, scope, path)
        if given not in (None, built) and not scope._params.get("measuring"):
            raise Fault(given, f"{built}" + ", as it follows from the rest" * isinstance(inner, Rebuild))
        return built

    def offset_of(self, name: str) -> int:
        """Return the offset of a field from the layout's first byte; all fields before it must have a fixed size."""
        offset = 0
        for part in self.subcons:
            if part.name == name:
                return offset
            offset += part.sizeof()
        raise KeyError(name)


def bare(part: Any) -> Any:
    """Return a part without its name."""
    return part.subcon if isinstance(part, Renamed) else part


class Must(Construct):  # type: ignore[type-arg]
    """A rule about an earlier field, which is checked when it is read and when it is written.

    Args:
        field: a field of the same layout, or of a header inside it (`base.flags`). Errors report its offset.
        condition: a `this` expression.
        limit: the allowed value, in words.
        part: a part of the field that has a name of its own, such as a few bits of a flag word.
        value: the value of that part, or a `this` expression for it.
        is_last: whether a broken rule ends even an analyst's reading.
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
