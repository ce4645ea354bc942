from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.bodies import Tree, UnexplainedError, Value
from mqproto.bodies.lexical import TYPES
from mqproto.bodies.xmlserializer import read_serialized, write_serialized
from tests.bodies.values import ANY_LEAF, LEAVES, qualified, xml_trees

HEAD = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema"'
TYPED = st.sampled_from(sorted(TYPES)).flatmap(lambda name: st.tuples(st.just(name), LEAVES[name]))
ARRAYS = st.sampled_from(sorted(TYPES)).flatmap(
    lambda name: st.tuples(st.just(name), st.lists(st.one_of(LEAVES[name], st.none()), max_size=4))
)


@given(TYPED)
def test_a_value_of_a_simple_type_comes_back(typed: tuple[str, Value]) -> None:
    name, value = typed
    assert read_serialized(write_serialized(value, f"xml:{name}")) == (f"xml:{name}", value)


@given(ARRAYS, st.booleans())
def test_an_array_comes_back_also_one_in_another(typed: tuple[str, list[Value]], nested: bool) -> None:
    name, value = typed
    kind, values = f"ArrayOf{name[0].upper()}{name[1:]}", value
    if nested:
        kind, values = f"ArrayOf{kind}", [value, None, []]
    assert read_serialized(write_serialized(values, f"xml:{kind}")) == (f"xml:{kind}", values)


@given(
    st.lists(
        st.one_of(ANY_LEAF, st.none(), st.lists(st.text("ab"), min_size=1), st.just(Tree("O"))), max_size=4
    )
)
def test_an_array_of_anything_comes_back(values: list[Value]) -> None:
    kind, found = read_serialized(write_serialized(values, "xml:ArrayOfAnyType"))
    assert (kind, found) == ("xml:ArrayOfAnyType", values)


@given(qualified(0), xml_trees())
def test_an_object_comes_back(name: str, tree: Tree) -> None:
    assume(name not in TYPES)
    value = Tree(name, tree.members)
    kind, found = read_serialized(write_serialized(value, "xml"))
    assert (kind, found) == ("xml", value)


def test_what_net_writes_of_an_object_is_a_tree_of_texts() -> None:
    body = f"""<?xml version="1.0"?>\r
<Order {HEAD}>\r
  <Id>5</Id>\r
  <Lines><Line><Sku>a</Sku></Line><Line><Sku>b</Sku></Line></Lines>\r
  <Note xml:space="preserve">  </Note>\r
  <Paid xsi:nil="true" />\r
  <Any xmlns:q1="urn:x" xsi:type="q1:Special">1</Any>\r
  <Price currency="EUR">2.50</Price>\r
</Order>""".encode()
    line_a, line_b = Tree("", (("Sku", "a"),)), Tree("", (("Sku", "b"),))
    expected = Tree(
        "Order",
        (
            ("Id", "5"),
            ("Lines", Tree("", (("Line", [line_a, line_b]),))),
            ("Note", "  "),
            ("Paid", None),
            ("Any", Tree("", (("@xsi:type", "{urn:x}Special"), ("#text", "1")))),
            ("Price", Tree("", (("@currency", "EUR"), ("#text", "2.50")))),
        ),
    )
    assert read_serialized(body) == ("xml", expected)
    assert read_serialized(write_serialized(expected, "xml")) == ("xml", expected)


def test_what_fits_a_value_best_is_chosen() -> None:
    def kind(value: Value) -> str:
        return read_serialized(write_serialized(value, "xml"))[0]

    values: list[Value] = [5, 2**40, "a", None, [1, 2**40], [1], ["a", 1], [], [None]]
    assert [kind(value) for value in values] == [
        "xml:int", "xml:long", "xml:string", "xml", "xml:ArrayOfLong", "xml:ArrayOfInt", "xml:ArrayOfAnyType",
        "xml:ArrayOfAnyType", "xml:ArrayOfAnyType",
    ]  # fmt: skip
    assert write_serialized("a", "xml") == b'<?xml version="1.0"?>\r\n<string>a</string>'
    assert b"<Id>5</Id>" in write_serialized(Tree("Order", (("Id", 5),)), "xml")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<int>x</int>", "for a value of the type int"),
        ("<ArrayOfInt><int>x</int></ArrayOfInt>", "for a value of the type int"),
        (
            f'<ArrayOfAnyType {HEAD}><anyType xsi:type="ArrayOfInt"><a /></anyType></ArrayOfAnyType>',
            "than its items",
        ),
        ("<ArrayOfArrayOfInt><ArrayOfInt>5</ArrayOfInt></ArrayOfArrayOfInt>", "than its items"),
    ],
)
def test_what_is_no_value_of_its_type_is_not_explained(body: str, said: str) -> None:
    with pytest.raises(UnexplainedError, match=said):
        read_serialized(body.encode())


@pytest.mark.parametrize(
    "body",
    [
        "<ArrayOfInt><a/></ArrayOfInt>",
        "<ArrayOfOrder/>",
        "<ArrayOfint/>",
        "<ArrayOf/>",
        "<int a='b'>5</int>",
        "<int><a/></int>",
    ],
)
def test_what_only_looks_like_a_simple_type_is_an_object(body: str) -> None:
    assert read_serialized(body.encode())[0] == "xml"


def _deep(levels: int) -> Value:
    value: Value = "x"
    for _ in range(levels):
        value = Tree("", (("a", value),))
    return value


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (5, "xml:string", "not of type string"),
        (5, "xml:ArrayOfInt", "not a list"),
        (5, "xml:Nothing", "there are xml:string"),
        (2**70, "xml", "no simple type"),
        (Tree("a b"), "xml", "not a name of an element"),
        (Tree("a", (("b", 2**70),)), "xml", "no text"),
        (Tree("a", (("b:c", "1"),)), "xml", "not a name"),
        (Tree("a", (("@", "1"),)), "xml", "not a name"),
        (Tree("a", (("@b", "1"), ("@b", "2"))), "xml", "two attributes"),
        ("\ud800", "xml", "surrogate"),
        (_deep(150), "xml", "nested deeper"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(value: Value, kind: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        write_serialized(value, kind)


def test_lists_that_are_nested_too_deep_are_refused() -> None:
    value: Value = []
    for _ in range(150):
        value = [value]
    with pytest.raises(UsageError, match="nested deeper"):
        write_serialized(value, "xml")
    assert re.match("xml$", read_serialized(f"<{'ArrayOf' * 150}Int/>".encode())[0])
