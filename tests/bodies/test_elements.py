from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import example, given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.bodies import UnexplainedError
from mqproto.bodies.elements import INSTANCE, Element, check_name, read_xml, write_xml

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol">'
    + "".join(
        f'<!ENTITY lol{i + 1} "{"&lol" + str(i or "") + ";"}{"&lol" + str(i or "") + ";"}">'
        for i in range(30)
    )
    + "]><a>&lol30;</a>"
)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (LAUGHS, "DOCTYPE"),
        ('<!DOCTYPE a SYSTEM "http://127.0.0.1/x"><a/>', "DOCTYPE"),
        ('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', "DOCTYPE"),
        ("<a>&b;</a>", "undefined entity"),
        ("<a>" * 350_000, "nested deeper than 100"),
        ("<a" + "".join(f" b{i}=''" for i in range(210_000)) + "/>", "more than 200,000"),
        ("<r>" + "<a/>" * 210_000 + "</r>", "more than 200,000"),
        (f"<a xmlns='{'x' * 301}'/>", "namespace of more than"),
        ("<a " + " ".join(f"xmlns:p{i}='u'" for i in range(70)) + "/>", "more than 64 namespaces"),
        ("<?xml version='1.0' encoding='cp037'?><a/>", "'cp037'"),
        ("<?xml version='1.0' encoding='UTF-16'?><a/>", "not XML"),
        (
            "<a xmlns:i='http://www.w3.org/2001/XMLSchema-instance' i:type='q:x'/>",
            "prefix names no namespace",
        ),
        ("<a>", "no element found"),
        ("<a>\0</a>", "NUL byte"),
        ("", "no element found"),
        ("<a>&#x19;\U000f0001</a>", "both forbidden characters"),
        ("<a>&#x19;&#xF0001;</a>", "both forbidden characters"),
        ("<a><![CDATA[ ]]>&#x19;</a>", "invalid character"),
    ],
)
def test_what_is_not_read_is_refused_with_its_reason(data: str, said: str) -> None:
    with pytest.raises(UnexplainedError, match=said) as caught:
        read_xml(data.encode())
    assert len(str(caught.value)) <= 600


def test_a_doctype_that_hides_in_utf_16_is_refused() -> None:
    with pytest.raises(UnexplainedError, match="DOCTYPE"):
        read_xml(LAUGHS.encode("utf-16"))
    with pytest.raises(UnexplainedError, match="NUL"):
        read_xml(LAUGHS.encode("utf-16-le"))
    with pytest.raises(UnexplainedError, match="not the UTF-16"):
        read_xml(b"\xff\xfe<")


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_is_as_it_was_written(codec: str) -> None:
    data = "<a b='&#x9;&#x1;'>ä\r\n\r \n&#xD;&#x0;&#xFFFE;<!-- -->😀<c/>x</a>".encode(codec)
    root = read_xml(data)
    assert root.attributes == [(("", "b"), "\t\x01")]
    assert root.content == ["ä\r\n\r \n\r\0\ufffe😀", Element(("", "c")), "x"]


def test_iso_8859_1_is_read_where_it_is_declared() -> None:
    assert read_xml("<?xml version='1.0' encoding='ISO-8859-1'?><a>ä</a>".encode("latin-1")).text == "ä"


def test_a_carriage_return_is_kept_over_the_pieces_in_which_the_parser_has_it() -> None:
    text = "x" * 65_531 + "\r\n\r" + "y" * 100_000 + "\r"
    for length in range(-3, 4):
        assert read_xml(f"<a>{'z' * (3 + length)}{text}</a>".encode()).text == "z" * (3 + length) + text


@given(st.text(st.characters(exclude_categories=["Cs", "Co"])))
@example("private: \U000f0000")  # Beside a character that XML forbids it would be refused.
def test_any_text_comes_back(text: str) -> None:
    element = Element(("", "a"), [(("", "b"), text)], [text] if text else [])
    found = read_xml(write_xml(element))
    assert found.text == text
    assert found.attributes[0] == (("", "b"), text)


@given(st.binary(max_size=60).map(b"<a>".__add__))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(UnexplainedError):
        read_xml(data)


@pytest.mark.parametrize("name", ["", "a b", "a>", "1", "a:b", "a/", "\ud800"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a name of an element"):
        check_name(name)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("<a xmlns='}'/>", "namespace with '}'"),
        ("<a xmlns:b='&#1;'>&#xFFFE;</a>", "namespace with"),
        (f"<a xmlns:xsi='{INSTANCE}' xsi:type=''/>", "not a name"),
        (f"<a xmlns:xsi='{INSTANCE}' xmlns:b='c' xsi:type='b:'/>", "not a name"),
    ],
)
def test_what_could_not_be_written_again_is_refused(data: str, said: str) -> None:
    with pytest.raises(UnexplainedError, match=said):
        read_xml(data.encode())


def test_a_type_in_no_namespace_is_written_where_there_is_none_by_default() -> None:
    inner = Element(("urn:n", "b"), [(("", "c"), "d")], [Element(("urn:n", "e"))], type=("", "t"))
    for root in (inner, Element(("urn:n", "a"), content=[inner, "x"]), Element(("", "a"), content=[inner])):
        assert read_xml(write_xml(root)) == root


def test_two_attributes_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two attributes"):
        write_xml(Element(("", "a"), [(("", "b"), "1"), (("", "b"), "2")]))


def test_memory_is_bounded_whatever_the_xml_says() -> None:
    worst = "<r>" + "<a b='c'>x</a>" * 10_000 + "</r>"
    tracemalloc.start()
    read_xml(worst.encode())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 15 * 2**20
