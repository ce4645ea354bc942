"""Values that Hypothesis draws, and streams of BinaryFormatter as in [MS-NRBF]."""

from __future__ import annotations

import struct
from decimal import Decimal

from hypothesis import strategies as st

from mqproto.bodies import DateTime, Tree, Value

LAST_TICK = 3_155_378_975_999_999_999
ZONES = st.sampled_from(["", "Z", "+01:00", "-14:00", "+00:00"])
TIMES = st.builds(DateTime, st.integers(0, LAST_TICK), ZONES)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DECIMALS = st.builds(
    lambda number, scale: Decimal(number).scaleb(-scale), st.integers(-(10**28), 10**28), st.integers(0, 28)
)
LEAVES: dict[str, st.SearchStrategy[Value]] = {
    "string": TEXTS,
    "boolean": st.booleans(),
    "byte": st.integers(-(2**7), 2**7 - 1),
    "unsignedByte": st.integers(0, 2**8 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "unsignedShort": st.integers(0, 2**16 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "unsignedInt": st.integers(0, 2**32 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "unsignedLong": st.integers(0, 2**64 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "decimal": DECIMALS,
    "char": st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF),
    "dateTime": TIMES,
    "guid": st.uuids(),
    "base64Binary": st.binary(max_size=40),
}
"""Strategies that draw the values of each simple XML type."""
ANY_LEAF = st.one_of(
    *(LEAVES[name] for name in ("string", "boolean", "long", "double", "decimal", "dateTime", "guid"))
)
NAMES = st.from_regex(r"[A-Za-z_äÖ][A-Za-z0-9_.ä-]{0,8}", fullmatch=True)


def qualified(depth: int) -> st.SearchStrategy[str]:
    """Draw a name in no namespace, or in one that no enclosing element uses."""
    return st.one_of(NAMES, NAMES.map(lambda name: f"{{urn:{depth}}}{name}"))


def _distinct(members: list[tuple[str, Value]]) -> tuple[tuple[str, Value], ...]:
    """Return the items without those that have the name of an earlier item.

    XML would read adjacent ones as one list.
    """
    found: list[tuple[str, Value]] = []
    for name, value in members:
        if not any(name == known for known, _ in found):
            found.append((name, value))
    return tuple(found)


@st.composite
def xml_trees(draw: st.DrawFn, depth: int = 3) -> Tree:
    """Draw an object in the form that XML has.

    It has attributes first, and then either only text, or elements and texts that are not empty.
    """
    attributes = draw(st.lists(st.tuples(qualified(9).map("@{}".format), TEXTS), max_size=2))
    if depth == 0 or draw(st.booleans()):
        text: Value = draw(st.one_of(TEXTS.filter(len), st.none()))
        return Tree("", _distinct([*attributes, ("#text", text)]))
    member: st.SearchStrategy[Value] = st.one_of(TEXTS, st.none(), xml_trees(depth - 1).filter(_stays))
    values: st.SearchStrategy[Value] = st.one_of(member, st.lists(member, min_size=2, max_size=3))
    return Tree(
        "", _distinct([*attributes, *draw(st.lists(st.tuples(qualified(depth), values), max_size=3))])
    )


def _stays(tree: Tree) -> bool:
    """Return whether a tree, once written as XML, differs from a text and from an empty element."""
    return bool(tree.members) and [name for name, _ in tree.members] != ["#text"]


# Streams.


def text(value: str) -> bytes:
    """Return a LengthPrefixedString.  [MS-NRBF] 2.1.1.6"""
    data, length, prefix = value.encode("utf-8"), len(value.encode("utf-8")), b""
    while length >= 0x80:
        prefix += bytes([length & 0x7F | 0x80])
        length >>= 7
    return prefix + bytes([length]) + data


def stream(*records: bytes, root: int = 1) -> bytes:
    """Return a whole stream.  [MS-NRBF] 2.6.1, 2.6.3"""
    return struct.pack("<b4i", 0, root, -1, 1, 0) + b"".join(records) + b"\x0b"


def string(identifier: int, value: str) -> bytes:
    """Return a BinaryObjectString.  [MS-NRBF] 2.5.7"""
    return b"\x06" + struct.pack("<i", identifier) + text(value)


def reference(identifier: int) -> bytes:
    """Return a MemberReference.  [MS-NRBF] 2.5.3"""
    return b"\x09" + struct.pack("<i", identifier)


def instance(
    identifier: int, name: str, members: list[str], *values: bytes, count: int | None = None
) -> bytes:
    """Return a SystemClassWithMembersAndTypes whose members are objects.  [MS-NRBF] 2.3.2.3"""
    names = b"".join(map(text, members))
    head = struct.pack("<bi", 4, identifier) + text(name)
    return (
        head + struct.pack("<i", len(members) if count is None else count) + names + b"\x02" * len(members)
    ) + b"".join(values)


def array(identifier: int, *values: bytes, length: int | None = None) -> bytes:
    """Return an ArraySingleObject.  [MS-NRBF] 2.4.3.2"""
    return struct.pack("<b2i", 16, identifier, len(values) if length is None else length) + b"".join(values)


NULL = b"\x0a"
