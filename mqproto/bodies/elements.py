"""Turns XML in the form of .NET's XmlTextWriter into elements and back; it reads no other XML.

A DOCTYPE is refused, so there are no entities, and nothing is fetched. Two things differ from XML 1.0, because they
differ in .NET's reader. A carriage return is kept as it is, and characters that XML forbids may be written as
references, as in `&#x19;`.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias
from xml.parsers import expat

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.bodies.lexical import SPACE
from mqproto.bodies.values import DEPTH_LIMIT, VALUES_LIMIT, UnexplainedError

INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
WSDL_TYPES: Final = "http://microsoft.com/wsdl/types/"
"""The namespace of .NET's own simple types, guid and char."""
XML: Final = "http://www.w3.org/XML/1998/namespace"
PREFIXES: Final = {INSTANCE: "xsi", SCHEMA: "xsd", XML: "xml"}
_CHUNK_BYTES: Final = 65_536
_PREFIX_LIMIT: Final = 64
_NAMESPACE_LIMIT: Final = 300
_ENCODINGS: Final = (None, "utf-8", "utf-16", "us-ascii", "iso-8859-1")
_REFERENCE: Final = re.compile(rb"&#(?:x([0-9A-Fa-f]{1,6})|([0-9]{1,7}));")
_STAND_IN: Final = 0xF0000
"""The first of the private-use characters that temporarily stand for characters that expat refuses."""
_STAND_INS: Final = re.compile("[\U000f0000-\U000f001f\U000f0fff\U000f0ffe]")
_STAND_INS_BYTES: Final = (b"\xf3\xb0\x80", b"\xf3\xb0\xbf\xbf", b"\xf3\xb0\xbf\xbe")
_NO_NAMESPACE: Final = re.compile("[{}\U000f0000-\U000f001f\U000f0fff\U000f0ffe]")
"""Matches the characters that a namespace cannot have: braces, which delimit namespaces in trees, and the stand-ins for
those that XML forbids.
"""
_ESCAPED: Final = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff&<>]")
_ESCAPED_QUOTED: Final = re.compile('[\x00-\x1f\ufffe\uffff&<>"]')
_NAMED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


Name: TypeAlias = tuple[str, str]
"""A namespace and a name; the namespace is empty if the name has none."""


@dataclass(slots=True)
class Element:
    """One element.

    attributes: the names and values of its attributes, without namespace declarations.
    content: its texts and elements, in order; adjacent texts are joined.
    type: the type that its attribute xsi:type names, which is not in `attributes`; None if there is no such attribute.
    """

    name: Name
    attributes: list[tuple[Name, str]] = field(default_factory=list)
    content: list[str | Element] = field(default_factory=list)
    type: Name | None = None

    @property
    def children(self) -> Iterator[Element]:
        """The child elements."""
        return (part for part in self.content if isinstance(part, Element))

    @property
    def text(self) -> str:
        """The texts in the element, joined together."""
        return "".join(part for part in self.content if isinstance(part, str))


def read_xml(data: bytes) -> Element:
    """Return the root element of XML in UTF-8, UTF-16 with a byte order mark, ASCII or ISO-8859-1.

    Raises:
        UnexplainedError: the bytes are not XML, or have a DOCTYPE, more than VALUES_LIMIT elements and attributes, or
            elements nested deeper than DEPTH_LIMIT.
    """
    encoding = None
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        try:
            data, encoding = data.decode("utf-16").encode("utf-8"), "utf-8"
        except UnicodeError:
            raise UnexplainedError("the XML is not the UTF-16 that its first bytes say") from None
    # Checked before anything is parsed. A DOCTYPE in UTF-16 is not found here, but its NUL bytes are.
    if b"<!DOCTYPE" in data:
        raise UnexplainedError("the XML has a DOCTYPE, which may define entities and is not read")
    if b"\0" in data:
        raise UnexplainedError("it is not XML: it has a NUL byte")
    return _Reader(data.removeprefix(BOM_UTF8), encoding).read()


class _Reader:
    def __init__(self, data: bytes, encoding: str | None) -> None:
        # In a CDATA section there are no references, and .NET does not write such sections.
        self._replaced = b"<![CDATA[" not in data and any(map(_is_forbidden, _REFERENCE.finditer(data)))
        if self._replaced:
            numbers = map(_number, _REFERENCE.finditer(data))
            if any(stand_in in data for stand_in in _STAND_INS_BYTES) or any(
                _STAND_IN <= number <= _STAND_IN + 0xFFF for number in numbers
            ):
                raise UnexplainedError("the XML has both forbidden characters and some of U+F0000 to U+F0FFF")
            data = _REFERENCE.sub(_stand_in, data)
        self._data = data
        self._root: Element | None = None
        self._open: list[Element] = []
        self._count = 0
        self._prefixes: list[tuple[str, str]] = []
        self._parser = parser = expat.ParserCreate(encoding, " ")
        parser.buffer_text = False
        parser.XmlDeclHandler = self._declaration
        parser.StartNamespaceDeclHandler = self._namespace
        parser.EndNamespaceDeclHandler = self._namespace_ends
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.ordered_attributes = True

    def read(self) -> Element:
        try:
            # Expat parses its input to the end, even after one of the functions below has raised.
            for start in range(0, len(self._data), _CHUNK_BYTES):
                self._parser.Parse(self._data[start : start + _CHUNK_BYTES], False)
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            said = expat.ErrorString(error.code)
            raise UnexplainedError(
                f"it is not XML: {said}, line {error.lineno}, column {error.offset}"
            ) from None
        finally:
            # Break the reference cycle between this object and the parser.
            del self._parser
        assert self._root is not None, "expat refuses a document without an element"
        return self._root

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            raise UnexplainedError(f"the XML is in {quoted(encoding)}: UTF-8, UTF-16 and ISO-8859-1 are read")

    def _namespace(self, prefix: str | None, uri: str | None) -> None:
        self._prefixes.append((prefix or "", uri or ""))
        # Each name repeats its namespace.
        if uri and len(uri) > _NAMESPACE_LIMIT:
            raise UnexplainedError(f"the XML has a namespace of more than {_NAMESPACE_LIMIT} characters")
        if uri and (found := _NO_NAMESPACE.search(uri)):
            raise UnexplainedError(f"the XML has a namespace with {quoted(found[0])}, which none has")
        if len(self._prefixes) > _PREFIX_LIMIT:
            raise UnexplainedError(f"the XML has more than {_PREFIX_LIMIT} namespaces at one place")

    def _namespace_ends(self, prefix: str | None) -> None:
        self._prefixes.pop()

    def _start(self, name: str, attributes: list[str]) -> None:
        self._count += 1 + len(attributes) // 2
        if self._count > VALUES_LIMIT:
            raise UnexplainedError(f"the XML has more than {VALUES_LIMIT:,} elements and attributes")
        if len(self._open) >= DEPTH_LIMIT:
            raise UnexplainedError(f"the XML is nested deeper than {DEPTH_LIMIT} levels")
        element = Element(_name(name))
        for key, value in zip(map(_name, attributes[::2]), attributes[1::2], strict=True):
            if key == (INSTANCE, "type"):
                element.type = self._qualified(value)
            else:
                element.attributes.append((key, self._as_written(value)))
        if self._open:
            self._open[-1].content.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _qualified(self, name: str) -> Name:
        prefix, _, local = name.strip(SPACE).rpartition(":")
        try:
            check_name(local)
        except UsageError:
            raise UnexplainedError(f"the XML has a type {quoted(name)}, which is not a name") from None
        for known, uri in reversed(self._prefixes):
            if known == prefix:
                return uri, local
        if prefix:
            raise UnexplainedError(f"the XML has a type {quoted(name)} whose prefix names no namespace")
        return "", local

    def _end(self, _: str) -> None:
        element = self._open.pop()
        element.content = [part for part in _joined(element.content) if part]

    def _text(self, text: str) -> None:
        if text == "\n":
            # Expat turns each line end into one line feed, and hands it out by itself.
            at = self._parser.CurrentByteIndex
            if self._data[at : at + 1] == b"\r":
                text = "\r\n" if self._data[at + 1 : at + 2] == b"\n" else "\r"
        self._open[-1].content.append(self._as_written(text))

    def _as_written(self, text: str) -> str:
        if not self._replaced:
            return text
        return _STAND_INS.sub(lambda found: chr(_of_stand_in(ord(found[0]))), text)


def _joined(content: list[str | Element]) -> Iterator[str | Element]:
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        yield "".join(texts)
        texts.clear()
        yield part
    yield "".join(texts)


def _name(name: str) -> Name:
    namespace, _, local = name.rpartition(" ")
    return namespace, local


def _is_forbidden(found: re.Match[bytes]) -> bool:
    """Whether a match is a reference to a character that XML 1.0 forbids but .NET writes."""
    number = _number(found)
    return (number < 0x20 and number not in (0x9, 0xA, 0xD)) or number in (0xFFFE, 0xFFFF)


def _number(found: re.Match[bytes]) -> int:
    return int(found[1], 16) if found[1] else int(found[2])


def _stand_in(found: re.Match[bytes]) -> bytes:
    if not _is_forbidden(found):
        return found[0]
    return b"&#%d;" % (_STAND_IN + (_number(found) & 0xFFF))


def _of_stand_in(number: int) -> int:
    low = number - _STAND_IN
    return low if low < 0x20 else 0xF000 + low


def write_xml(root: Element) -> bytes:
    """Return an element as UTF-8 with .NET's XML declaration, without indentation.

    Raises:
        UsageError: the element has a name or a text that XML cannot represent.
    """
    parts = ['<?xml version="1.0"?>\r\n']
    is_text = not root.attributes and root.type is None and not any(root.children)
    _write(root, "", parts, "" if is_text else f' xmlns:xsi="{INSTANCE}" xmlns:xsd="{SCHEMA}"')
    return "".join(parts).encode("utf-8")


def _write(element: Element, around: str, parts: list[str], declared: str = "") -> None:
    namespace, local = element.name
    check_name(local)
    default = namespace
    if namespace and element.type is not None and not element.type[0]:
        # A type without a prefix is in no namespace only if there is no default namespace.
        default, local = "", f"q0:{local}"
    tag = f"<{local}{declared}"
    if default != namespace:
        tag += f' xmlns:q0="{_quoted_text(namespace)}"'
    if default != around:
        tag += f' xmlns="{_quoted_text(default)}"'
    if element.type is not None:
        tag += _type_attribute(element.type, default)
    if len({name for name, _ in element.attributes}) < len(element.attributes):
        raise UsageError(f"{quoted(local)} has two attributes of one name, which no XML holds")
    for number, ((attribute_namespace, name), text) in enumerate(element.attributes):
        check_name(name)
        prefix = PREFIXES.get(attribute_namespace, f"p{number}")
        if attribute_namespace and attribute_namespace not in PREFIXES:
            tag += f' xmlns:{prefix}="{_quoted_text(attribute_namespace)}"'
        tag += f' {prefix + ":" if attribute_namespace else ""}{name}="{_quoted_text(text)}"'
    texts = [part for part in element.content if isinstance(part, str)]
    if texts and len(texts) == len(element.content) and not "".join(texts).strip(SPACE) and any(texts):
        # .NET's readers drop text that is only white space, unless they are told to keep it.
        tag += ' xml:space="preserve"'
    parts.append(tag)
    if not element.content:
        parts.append(" />")
        return
    parts.append(">")
    for part in element.content:
        if isinstance(part, str):
            parts.append(_ESCAPED.sub(_reference, _whole(part)))
        else:
            _write(part, default, parts)
    parts.append(f"</{local}>")


def _type_attribute(name: Name, around: str) -> str:
    namespace, local = name
    check_name(local)
    if namespace in PREFIXES:
        return f' xsi:type="{PREFIXES[namespace]}:{local}"'
    if namespace == around:
        return f' xsi:type="{local}"'
    return f' xmlns:q1="{_quoted_text(namespace)}" xsi:type="q1:{local}"'


def _quoted_text(text: str) -> str:
    return _ESCAPED_QUOTED.sub(_reference, _whole(text))


def _reference(found: re.Match[str]) -> str:
    return _NAMED.get(found[0]) or f"&#x{ord(found[0]):X};"


def _whole(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError(f"{quoted(text)} has half of a surrogate pair, which no XML holds")
    return text


@lru_cache(maxsize=1_000)
def check_name(name: str) -> None:
    """Check that a name, which must have no prefix, can be the name of an element.

    Raises:
        UsageError: the name is not allowed.
    """
    try:
        root = expat.ParserCreate("utf-8", " ")
        if ":" not in name and not set(name) & set(" \t\r\n/<>=\"'"):
            root.Parse(f"<{name}/>".encode(), True)
            return
    except (expat.ExpatError, UnicodeError):
        pass
    raise UsageError(f"{quoted(name)} is not a name of an element of XML")
