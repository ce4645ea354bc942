"""Reads the records of [MS-NRBF], .NET's BinaryFormatter, into plain objects.

It never makes objects of the classes that they name. A name in a stream never makes us look up, create or call
anything. Lists grow as items are read, whatever their stated count is. Only nulls can be numerous in a few bytes; they
count as values, and the number of values per byte is limited.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from math import prod
from typing import Final, NamedTuple, TypeAlias

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.bodies.lexical import TYPES
from mqproto.bodies.values import DEPTH_LIMIT, VALUES_LIMIT, DateTime, TimeSpan, UnexplainedError

EXPANSION: Final = 16
"""The number of values, and of bytes of text, that each byte of a stream may produce."""
VALUES_FLOOR: Final = 1_024
"""The number of values that even a short stream may have."""
RANK_LIMIT: Final = 32
"""The maximum number of dimensions of an array, as in .NET."""
GADGETS: Final = (
    "System.DelegateSerializationHolder",
    "System.Collections.Generic.ComparisonComparer`1",
    "System.Windows.Data.ObjectDataProvider",
    "System.Windows.ResourceDictionary",
    "System.Windows.Forms.AxHost+State",
    "System.Windows.Forms.BindingSource",
    "System.Configuration.Install.AssemblyInstaller",
    "System.Activities.Presentation.WorkflowDesigner",
    "System.Workflow.ComponentModel.Serialization.ActivitySurrogateSelector",
    "System.Workflow.ComponentModel.AppSettings",
    "Microsoft.VisualStudio.Text.Formatting.TextFormattingRunProperties",
    "System.Drawing.Design.ToolboxItemContainer",
    "System.Management.Automation.PSObject",
    "System.Security.Principal.WindowsIdentity",
    "System.Security.Principal.WindowsPrincipal",
    "System.Security.Claims.ClaimsIdentity",
    "System.Security.Claims.ClaimsPrincipal",
    "System.IdentityModel.Tokens.SessionSecurityToken",
    "Microsoft.IdentityModel.Claims.WindowsClaimsIdentity",
    "System.Web.Security.RolePrincipal",
    "System.Runtime.Remoting.ObjRef",
    "System.CodeDom.Compiler.TempFileCollection",
    "System.IO.FileSystemInfo",
)
"""Classes that attackers use to make BinaryFormatter run code, as published by github.com/pwntester/ysoserial.net."""


class Reference(NamedTuple):
    """A reference to the object with this id.  [MS-NRBF] 2.5.3"""

    id: int


@dataclass(slots=True)
class Instance:
    """An object of a class.  [MS-NRBF] 2.3"""

    name: str
    members: list[str]
    values: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class Array:
    """An array. Its items are in the order in which the last dimension changes fastest.  [MS-NRBF] 2.4"""

    lengths: list[int]
    values: list[Item] = field(default_factory=list)


Primitive: TypeAlias = bool | int | float | str | bytes | Decimal | DateTime | TimeSpan | None
Item: TypeAlias = "Primitive | Reference | Instance | Array"
Object: TypeAlias = "str | bytes | Instance | Array"


class _Member(NamedTuple):
    """The kind of value in one place of an object.

    primitive: the code of a primitive type; None for a record.
    """

    primitive: int | None


_RECORD: Final = _Member(None)


@dataclass(slots=True)
class _Open:
    """An object or array whose values are being read.

    places: one item for each value of an object; a single item for an array.
    """

    values: list[Item]
    places: list[_Member]
    count: int
    is_array: bool

    @property
    def missing(self) -> int:
        return self.count - len(self.values)

    @property
    def place(self) -> _Member:
        return self.places[0] if self.is_array else self.places[len(self.values)]


@dataclass(slots=True)
class _Class:
    name: str
    members: list[str]
    places: list[_Member]


class Stream:
    """A whole stream: its `objects`, keyed by id, and the id of its `root`.

    Raises:
        UnexplainedError: the data is not a stream of [MS-NRBF], names a class used in known attacks, has more than
            `values_limit` values, or nests objects deeper than DEPTH_LIMIT.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._count = 0
        self.values_limit = min(VALUES_LIMIT, VALUES_FLOOR + EXPANSION * len(data))
        self._open: list[_Open] = []
        self._classes: dict[int, _Class] = {}
        self._libraries: dict[int, str] = {}
        self.objects: dict[int, Object] = {}
        if self._byte() != 0:
            raise UnexplainedError("it is not a stream of BinaryFormatter: it does not begin with its header")
        self.root, _, major, minor = struct.unpack("<4i", self._bytes(16))
        if (major, minor) != (1, 0):
            raise UnexplainedError(f"the stream has version {major}.{minor}, and 1.0 is known")
        while self._next():
            pass
        if self._at != len(data):
            raise UnexplainedError(f"{len(data) - self._at:,} bytes are behind the end of the stream")

    # Reading from the bytes.

    def _bytes(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise UnexplainedError(
                f"the stream says {count:,} bytes at byte {self._at:,}, and has {len(self._data) - self._at:,}"
            )
        found = self._data[self._at : end]
        self._at = end
        return found

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _int(self) -> int:
        return int.from_bytes(self._bytes(4), "little", signed=True)

    def _string(self) -> str:
        length = shift = 0
        while True:
            byte = self._byte()
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise UnexplainedError(f"the stream has a length of more than 5 bytes at byte {self._at:,}")
        try:
            return self._bytes(length).decode("utf-8")
        except UnicodeDecodeError:
            raise UnexplainedError(
                f"the stream has a text that is not UTF-8 before byte {self._at:,}"
            ) from None

    def _class_name(self) -> str:
        name = self._string()
        for gadget in GADGETS:
            if gadget in name:
                raise UnexplainedError(
                    f"the stream names {gadget}, with which streams attack those who read them"
                )
        return name

    def _counted(self, count: int = 1) -> None:
        self._count += count
        if self._count > self.values_limit:
            raise UnexplainedError(f"the stream has more than {self.values_limit:,} values")

    def _primitive(self, code: int) -> Primitive:
        """Read a primitive value.  [MS-NRBF] 2.1.2.3"""
        if code in _NUMBERS:
            layout = _NUMBERS[code]
            found: int | float = layout.unpack(self._bytes(layout.size))[0]
            return found
        if code not in _OTHERS:
            raise UnexplainedError(f"the stream has a primitive type {code} at byte {self._at:,}")
        try:
            return _OTHERS[code](self)
        except (UsageError, ValueError) as error:
            if isinstance(error, UnexplainedError):
                raise
            raise UnexplainedError(f"the stream has a value that is none, before byte {self._at:,}") from None

    def _char(self) -> str:
        lead = self._byte()
        size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3
        return (bytes([lead]) + self._bytes(size - 1)).decode("utf-8")

    def _decimal(self) -> Primitive:
        found = TYPES["decimal"].parse(self._string())
        assert isinstance(found, Decimal)
        return found

    def _boolean(self) -> bool:
        return self._byte() != 0

    def _time(self) -> DateTime:
        return time_of(int.from_bytes(self._bytes(8), "little"))

    def _span(self) -> TimeSpan:
        return TimeSpan(int.from_bytes(self._bytes(8), "little", signed=True))

    # The records.

    def _next(self) -> bool:
        """Read the next value or record; return False at the end of the stream."""
        if self._open:
            top = self._open[-1]
            if not top.missing:
                self._open.pop()
                return True
            if (code := top.place.primitive) is not None:
                self._counted()
                top.values.append(self._primitive(code))
                return True
        record = self._byte()
        if record == _END and not self._open:
            return False
        if record == _LIBRARY:
            identifier = self._int()
            self._libraries[identifier] = self._string()
        elif record in _NULLS:
            self._nulls({10: lambda: 1, 13: self._byte, 14: self._int}[record]())
        elif record in _RECORDS:
            _RECORDS[record](self)
        else:
            raise UnexplainedError(f"the stream has a record of type {record} at byte {self._at - 1:,}")
        return True

    def _put(self, value: Item) -> None:
        self._counted()
        if self._open:
            self._open[-1].values.append(value)

    def _nulls(self, count: int) -> None:
        if (
            not self._open
            or not 0 < count <= self._open[-1].missing
            or (count > 1 and not self._open[-1].is_array)
        ):
            raise UnexplainedError(
                f"the stream has {count:,} nulls where fewer fit, before byte {self._at:,}"
            )
        self._counted(count)
        self._open[-1].values.extend([None] * count)

    def _reference(self) -> None:
        self._put(Reference(self._int()))

    def _typed(self) -> None:
        self._put(self._primitive(self._byte()))

    def _object(self, identifier: int, found: Object) -> None:
        if identifier in self.objects:
            raise UnexplainedError(f"the stream has two objects with the id {identifier}")
        self.objects[identifier] = found
        self._put(found)

    def _text(self) -> None:
        self._object(self._int(), self._string())

    def _place(self, kind: int) -> Callable[[], _Member]:
        """Return the function that reads the rest of a member's description.  [MS-NRBF] 2.3.1.2"""
        if kind not in _KINDS:
            raise UnexplainedError(f"the stream has a type {kind} of a member, before byte {self._at:,}")
        return lambda: _KINDS[kind](self)

    def _place_primitive(self) -> _Member:
        return _Member(self._byte())

    def _place_plain(self) -> _Member:
        return _RECORD

    def _place_system(self) -> _Member:
        self._class_name()
        return _RECORD

    def _place_class(self) -> _Member:
        self._class_name()
        self._int()
        return _RECORD

    def _place_array(self) -> _Member:
        self._byte()
        return _RECORD

    def _new_class(self, *, has_library: bool) -> None:
        identifier, name, count = self._int(), self._class_name(), self._int()
        if not 0 <= count <= len(self._data) - self._at:
            raise UnexplainedError(f"the stream says that {quoted(name)} has {count:,} members")
        self._counted(count)
        members = [self._string() for _ in range(count)]
        rest = [self._place(kind) for kind in self._bytes(count)]
        found = _Class(name, members, [place() for place in rest])
        if has_library and (library := self._int()) not in self._libraries:
            raise UnexplainedError(
                f"the stream says that {quoted(name)} is in library {library}, which it has not"
            )
        self._classes[identifier] = found
        self._instance(identifier, found)

    def _class_again(self) -> None:
        identifier, known = self._int(), self._int()
        if known not in self._classes:
            raise UnexplainedError(f"the stream refers to a class {known} that it does not have before")
        self._instance(identifier, self._classes[known])

    def _instance(self, identifier: int, known: _Class) -> None:
        instance = Instance(known.name, known.members)
        self._object(identifier, instance)
        self._begin(_Open(instance.values, known.places, len(known.members), is_array=False))

    def _begin(self, opened: _Open) -> None:
        if len(self._open) >= DEPTH_LIMIT:
            raise UnexplainedError(f"the stream is nested deeper than {DEPTH_LIMIT} levels")
        self._open.append(opened)

    def _array(self, identifier: int, lengths: list[int], place: _Member) -> None:
        if min(lengths) < 0:
            raise UnexplainedError(f"the stream has an array of {min(lengths):,} items")
        count = prod(lengths)
        if place.primitive is not None and count > len(self._data) - self._at:
            raise UnexplainedError(f"the stream says that an array has {count:,} items, which are not there")
        if place.primitive == _BYTE and len(lengths) == 1:
            self._object(identifier, self._bytes(count))
            return
        array = Array(lengths)
        self._object(identifier, array)
        # Count the inner lists of the outer dimensions. An array without items has none.
        self._counted(sum(prod(lengths[:rank]) for rank in range(1, len(lengths))) if count else 0)
        self._begin(_Open(array.values, [place], count, is_array=True))

    def _any_array(self) -> None:
        """Read a BinaryArray.  [MS-NRBF] 2.4.3.1"""
        identifier, form, rank = self._int(), self._byte(), self._int()
        if form > 5 or not 0 < rank <= RANK_LIMIT:
            raise UnexplainedError(f"the stream has an array of form {form} and {rank:,} dimensions")
        lengths = [self._int() for _ in range(rank)]
        if form >= 3:
            self._bytes(4 * rank)
        self._array(identifier, lengths, self._place(self._byte())())

    def _array_of_records(self) -> None:
        self._array(self._int(), [self._int()], _RECORD)

    def _array_of_primitives(self) -> None:
        identifier, length = self._int(), self._int()
        self._array(identifier, [length], _Member(self._byte()))


def time_of(bits: int) -> DateTime:
    """Return the time that these 64 bits represent.  [MS-NRBF] 2.1.1.5

    Raises:
        UsageError: the bits are not a time.
    """
    # The fourth kind is local, too: the second of the repeated hours in autumn.
    return DateTime(bits & (1 << 62) - 1, ("", "Z", "local", "local")[bits >> 62])


_END: Final = 11
_LIBRARY: Final = 12
_NULLS: Final = (10, 13, 14)
_BYTE: Final = 2
_RECORDS: Final[dict[int, Callable[[Stream], None]]] = {
    1: Stream._class_again,
    4: lambda stream: stream._new_class(has_library=False),
    5: lambda stream: stream._new_class(has_library=True),
    6: Stream._text,
    7: Stream._any_array,
    8: Stream._typed,
    9: Stream._reference,
    15: Stream._array_of_primitives,
    16: Stream._array_of_records,
    17: Stream._array_of_records,
}
_KINDS: Final[dict[int, Callable[[Stream], _Member]]] = {
    0: Stream._place_primitive,
    1: Stream._place_plain,
    2: Stream._place_plain,
    3: Stream._place_system,
    4: Stream._place_class,
    5: Stream._place_plain,
    6: Stream._place_plain,
    7: Stream._place_array,
}
_NUMBERS: Final = {
    code: struct.Struct(f"<{form}")
    for code, form in {
        2: "B", 6: "d", 7: "h", 8: "i", 9: "q", 10: "b", 11: "f", 14: "H", 15: "I", 16: "Q",
    }.items()
}  # fmt: skip
_OTHERS: Final[dict[int, Callable[[Stream], Primitive]]] = {
    1: Stream._boolean,
    3: Stream._char,
    5: Stream._decimal,
    12: Stream._span,
    13: Stream._time,
}
