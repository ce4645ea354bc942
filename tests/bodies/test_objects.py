"""Streams of BinaryFormatter that .NET would not write. test_mono.py has streams that Mono writes."""

from __future__ import annotations

import json
import struct
import tracemalloc
from contextlib import suppress
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from mqproto.bodies import Above, DateTime, Mention, TimeSpan, Tree, UnexplainedError, Value, to_json
from mqproto.bodies.objects import read_objects
from mqproto.bodies.records import GADGETS
from tests.bodies.values import NULL, array, instance, reference, stream, string, text


def number(code: int, data: bytes) -> bytes:
    """Return a MemberPrimitiveTyped.  [MS-NRBF] 2.5.1"""
    return bytes([8, code]) + data


def typed(identifier: int, name: str, members: dict[str, tuple[int, bytes]]) -> bytes:
    """Return a SystemClassWithMembersAndTypes whose members are primitive.  [MS-NRBF] 2.3.2.3"""
    head = struct.pack("<bi", 4, identifier) + text(name) + struct.pack("<i", len(members))
    kinds = bytes(len(members)) + bytes(code for code, _ in members.values())
    return head + b"".join(map(text, members)) + kinds + b"".join(data for _, data in members.values())


@pytest.mark.parametrize(
    ("code", "data", "value"),
    [
        (1, b"\1", True),
        (2, b"\xff", 255),
        (3, "ä".encode(), "ä"),
        (3, b"a", "a"),
        (3, "€".encode(), "€"),
        (5, text("-2.50"), Decimal("-2.50")),
        (6, struct.pack("<d", 1.5), 1.5),
        (7, b"\xff\xff", -1),
        (8, b"\xff\xff\xff\xff", -1),
        (9, b"\xff" * 8, -1),
        (10, b"\xff", -1),
        (11, struct.pack("<f", 1.5), 1.5),
        (12, b"\xff" * 8, TimeSpan(-1)),
        (13, (5 | 1 << 62).to_bytes(8, "little"), DateTime(5, "Z")),
        (13, (5 | 3 << 62).to_bytes(8, "little"), DateTime(5, "local")),
        (14, b"\xff\xff", 65535),
        (15, b"\xff" * 4, 2**32 - 1),
        (16, b"\xff" * 8, 2**64 - 1),
    ],
)
def test_each_primitive_is_read(code: int, data: bytes, value: Value) -> None:
    assert read_objects(stream(array(1, number(code, data)))) == [value]


def test_an_object_is_a_tree_and_one_that_lies_in_itself_is_above() -> None:
    inner = instance(2, "Inner", ["Outer", "Name", "Self"], reference(1), reference(3), reference(2))
    data = stream(instance(1, "Outer", ["A", "B"], reference(2), inner), string(3, "x"))
    tree = Tree("Inner", (("Outer", Above(2)), ("Name", "x"), ("Self", Above(1))))
    assert read_objects(data) == Tree("Outer", (("A", tree), ("B", Mention("/A"))))


def test_an_object_that_is_referred_to_again_is_the_path_to_where_it_stands() -> None:
    point = instance(3, "Point", ["a/b~c"], array(4, INT))
    box = b"\7" + struct.pack("<ibi2ib", 2, 2, 2, 2, 2, 2) + NULL + NULL + reference(3) + reference(3)
    found = read_objects(stream(array(1, box, reference(3), reference(4), reference(2), reference(1)), point))
    held = Tree("Point", (("a/b~c", [0]),))
    assert found == [
        [[None, None], [held, Mention("/0/1/0")]],
        Mention("/0/1/0"),
        Mention("/0/1/0/a~1b~0c"),
        Mention("/0"),
        Above(1),
    ]
    assert to_json(Mention("/0/1")) == {"$again": "/0/1"}


def test_a_text_stands_there_again_as_long_as_all_that_do_are_no_longer_than_the_body() -> None:
    short = read_objects(stream(array(1, *[reference(2)] * 9), string(2, "EUR")))
    assert short == ["EUR"] * 9
    found = read_objects(stream(array(1, *[reference(2)] * 60), string(2, "x" * 300_000)))
    assert found == ["x" * 300_000] * 2 + [Mention("/0")] * 58
    boxed = instance(2, "System.Char", ["m_value"], string(3, "x" * 300_000))
    assert read_objects(stream(array(1, *[reference(2)] * 60), boxed)) == found


@pytest.mark.parametrize("same", [10, 20])
def test_json_grows_with_its_body_however_often_its_objects_refer_to_one_another(same: int) -> None:
    """A body's JSON grows only with the body, however often its objects refer to one another.

    If the first body were written as a tree, its JSON would have 13 MB, although the body has fewer than 900 bytes.
    """
    laughs = [array(i, *([reference(i + 1)] * same)) for i in range(1, 7 if same == 10 else 30)]
    body = stream(*laughs, array(len(laughs) + 1, INT))
    said = json.dumps(to_json(read_objects(body)))
    assert len(said) < 100 * len(body)
    assert said.startswith("[" * len(laughs) + '[0], {"$again": "/')


def test_what_python_has_a_value_for_is_that_value() -> None:
    int_, long_, uint64 = (8, struct.pack("<i", -5)), (9, struct.pack("<q", 7)), (16, struct.pack("<Q", 7))
    zero = (8, bytes(4))
    guid = {f"_{letter}": (2, b"\1") for letter in "abcdefghijk"} | {
        "_a": int_,
        "_b": (7, b"\2\0"),
        "_c": (7, b"\3\0"),
    }
    assert [
        read_objects(stream(typed(1, f"System.{name}", members)))
        for name, members in {
            "Int32": {"m_value": int_},
            "DateTime": {"ticks": long_, "dateData": uint64},
            "TimeSpan": {"_ticks": long_},
            "Decimal": {
                "flags": (8, struct.pack("<I", 1 << 31 | 2 << 16)),
                "hi": zero,
                "lo": int_,
                "mid": zero,
            },
            "Guid": guid,
        }.items()
    ] == [
        -5,
        DateTime(7),
        TimeSpan(7),
        Decimal("-42949672.91"),
        UUID("fffffffb-0002-0003-0101-010101010101"),
    ]


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("Int32", {"m_value": (8, bytes(4)), "more": (8, bytes(4))}),
        ("Int32", {"other": (8, bytes(4))}),
        ("Decimal", {"flags": (8, bytes(4))}),
        ("Guid", {f"_{letter}": (8, b"\0\1\0\0") for letter in "abcdefghijk"}),
        ("Guid", {f"_{letter}": (2, b"\1") for letter in "abcdefghijkl"}),
        ("Guid", {f"_{letter}": (2, b"\1") for letter in "abcdefghxjk"}),
        ("DateTime", {"ticks": (9, bytes(8)), "dateData": (16, b"\xff" * 8)}),
        ("TimeSpan", {"_ticks": (3, b"x")}),
    ],
)
def test_a_class_that_only_has_such_a_name_is_a_tree(
    name: str, members: dict[str, tuple[int, bytes]]
) -> None:
    found = read_objects(stream(typed(1, f"System.{name}", members)))
    assert isinstance(found, Tree)
    assert found.name == f"System.{name}"


@pytest.mark.spec("[MS-NRBF] 2.4.3.1")
def test_arrays_of_all_forms_are_lists() -> None:
    def rectangle(form: int, lengths: list[int], rest: bytes) -> Value:
        head = struct.pack("<bibi", 7, 1, form, len(lengths)) + struct.pack(f"<{len(lengths)}i", *lengths)
        return read_objects(stream(head + rest))

    six = struct.pack("<6h", *range(6))
    assert rectangle(2, [2, 3], b"\0\7" + six) == [[0, 1, 2], [3, 4, 5]]
    assert rectangle(5, [2, 3], struct.pack("<2i", 4, 4) + b"\0\7" + six) == [[0, 1, 2], [3, 4, 5]]
    assert rectangle(0, [2], b"\0\2ab") == b"ab"
    assert rectangle(2, [2, 1], b"\0\2ab") == [[97], [98]]
    assert rectangle(2, [2**31 - 1, 0], b"\2") == []
    assert rectangle(1, [1], b"\7\x08" + NULL) == [None]
    assert rectangle(0, [1], b"\3" + text("x") + NULL) == [None]
    assert rectangle(0, [1], b"\4" + text("x") + bytes(4) + NULL) == [None]
    nulls = b"\x0d\2" + b"\x0e\3\0\0\0"
    assert read_objects(stream(array(1, nulls, length=5))) == [None] * 5
    again = array(1, instance(2, "C", ["a"], NULL), b"\1" + struct.pack("<2i", 3, 2) + string(4, "s"))
    assert read_objects(stream(again)) == [Tree("C", (("a", None),)), Tree("C", (("a", "s"),))]


INT = b"\x08\x08" + bytes(4)
AGAIN = b"".join(b"\1" + struct.pack("<2i", identifier, 2) + NULL for identifier in range(3, 62))
LAUGHS = [array(i, *([reference(i + 1)] * 10)) for i in range(1, 30)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "says 1 bytes"),
        (b"\1", "does not begin with its header"),
        (struct.pack("<b4i", 0, 1, -1, 2, 0), "version 2.0"),
        (stream(string(1, "x")) + b"x", "behind the end"),
        (stream(root=1), "object 1 that it does not have"),
        (stream(array(1, reference(9))), "object 9 that it does not have"),
        (stream(string(1, "x"), string(1, "y")), "two objects with the id 1"),
        (stream(b"\x15"), "record of type 21"),
        (stream(b"\2"), "record of type 2 "),
        (stream(NULL), "1 nulls where fewer fit"),
        (stream(array(1, b"\x0d\3", length=2)), "3 nulls"),
        (stream(array(1, b"\x0e\xff\xff\xff\x7f", length=2**31 - 1)), "more than 1,536 values"),
        (stream(array(1, b"\x0e\xff\xff\xff\xff", length=5)), "-1 nulls"),
        (stream(array(1, length=-1)), "array of -1 items"),
        (stream(array(1, length=2**31 - 1)), "record of type 11|says"),
        (stream(b"\x0f" + struct.pack("<2i", 1, 2**31 - 1) + b"\x08"), "items, which are not there"),
        (stream(b"\x0f" + struct.pack("<2i", 1, 1) + b"\x11"), "primitive type 17"),
        (stream(b"\x07" + struct.pack("<ibi", 1, 6, 1)), "form 6"),
        (stream(b"\x07" + struct.pack("<ibi", 1, 2, 1_000)), "1,000 dimensions"),
        (
            stream(b"\x07" + struct.pack("<ibi", 1, 2, 32) + struct.pack("<32i", 10_000, *[1] * 31) + b"\2"),
            "more than 3,536 values",
        ),
        (
            stream(b"\x07" + struct.pack("<ibi", 1, 0, 1) + struct.pack("<i", 1) + b"\x09"),
            "type 9 of a member",
        ),
        (stream(instance(1, "C", [], count=2**31 - 1)), "has 2,147,483,647 members"),
        (stream(instance(1, "C", [], count=-1)), "has -1 members"),
        (stream(instance(1, "C", ["a", "b"], b"\x0d\2")), "2 nulls"),
        (stream(b"\1" + struct.pack("<2i", 1, 2)), "class 2 that it does not have"),
        (stream(b"\5" + struct.pack("<i", 1) + text("C") + struct.pack("<2i", 0, 7)), "library 7"),
        (stream(b"\6" + struct.pack("<i", 1) + b"\xff" * 5), "more than 5 bytes"),
        (stream(b"\6" + struct.pack("<i", 1) + b"\xff\xff\xff\xff\x07"), "says 2,147,483,647 bytes"),
        (stream(b"\6" + struct.pack("<i", 1) + b"\1\xff"), "not UTF-8"),
        (stream(array(1, number(3, b"\xff\xff\xff"))), "a value that is none"),
        (stream(array(1, number(3, b"\xff"))), "a value that is none|says"),
        (stream(array(1, number(5, text("x")))), "a value that is none"),
        (stream(array(1, number(13, b"\xff" * 8))), "a value that is none"),
        (stream(b"".join(array(i, length=1) for i in range(1, 200))), "nested deeper"),
        (
            stream(*(array(i, reference(i + 1)) for i in range(1, 200)), array(200)),
            "objects .* nested deeper",
        ),
        (
            stream(
                array(1, instance(2, "C" * 15_000, ["m" * 15_000], NULL), AGAIN, length=60),
            ),
            "bytes of text",
        ),
    ],
)
def test_what_is_no_stream_or_too_much_is_not_explained(data: bytes, said: str) -> None:
    with pytest.raises(UnexplainedError, match=said):
        read_objects(data)


@pytest.mark.parametrize("gadget", GADGETS)
def test_a_stream_with_which_others_were_attacked_is_not_explained(gadget: str) -> None:
    name = f"System.Collections.Generic.List`1[[{gadget}, Assembly]]"
    for data in (stream(instance(1, gadget, [])), stream(instance(1, name, []))):
        with pytest.raises(UnexplainedError, match="with which streams attack"):
            read_objects(data)


@given(st.data())
def test_any_bytes_are_read_or_not_explained(data: st.DataObject) -> None:
    records = [instance(1, "C", ["a", "b"], reference(2), INT), array(2, NULL, string(3, "x")), LAUGHS[4]]
    whole = bytearray(stream(*records))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(UnexplainedError):
        read_objects(bytes(whole))


def test_memory_is_bounded_whatever_a_stream_says() -> None:
    worst = stream(array(1, *[array(i, NULL) for i in range(2, 10_000)]))
    tracemalloc.start()
    with suppress(UnexplainedError):
        read_objects(worst)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 15 * 2**20
