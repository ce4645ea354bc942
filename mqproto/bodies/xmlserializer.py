"""Bodies from .NET's XmlMessageFormatter: its XmlSerializer's output, in UTF-8, with body type 0.

    xml:int         a simple type of `lexical.py`:  <int>5</int>
    xml:ArrayOfInt  an array:            <ArrayOfInt><int>5</int><int xsi:nil="true" /></ArrayOfInt>
    xml             an object as a tree: <Order><Id>5</Id><Line><Sku>a</Sku></Line></Order>

The XML of an object does not name the types of its members, so these are text, trees and None. A name includes its
namespace, as in `{namespace}name`, unless the enclosing element has the same namespace. Sources: learn.microsoft.com,
"XmlMessageFormatter Class" and "Introducing XML Serialization"; [XMLSCHEMA1] 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.bodies.elements import (
    INSTANCE,
    PREFIXES,
    SCHEMA,
    WSDL_TYPES,
    XML,
    Element,
    Name,
    read_xml,
    write_xml,
)
from mqproto.bodies.lexical import SPACE, TYPES, parse, type_of
from mqproto.bodies.values import DEPTH_LIMIT, Tree, UnexplainedError, Value

ARRAY: Final = "ArrayOf"
ANY: Final = "anyType"
NIL: Final = (INSTANCE, "nil")
_UNSAID: Final = (NIL, (XML, "space"))
"""Attributes that say how to read a value but are not part of it."""
_NAMESPACES: Final = {prefix: namespace for namespace, prefix in PREFIXES.items()}
_CLARK: Final = re.compile(r"\{([^{}]*)\}(.*)", re.DOTALL)


def read_serialized(body: bytes) -> tuple[str, Value]:
    """Return the kind of a body, such as `xml:int`, and its value.

    Raises:
        UnexplainedError: the body is not XML that we can read, or is not a value of the type that it names.
    """
    root = read_xml(body)
    namespace, local = root.name
    if not namespace and root.type is None and all(key in _UNSAID for key, _ in root.attributes):
        if local in TYPES and not any(root.children):
            return f"xml:{local}", _simple(root, local)
        if item_type(local) is not None and _is_array(root, local):
            return f"xml:{local}", _items(root, local)
    return "xml", Tree(_said(root.name, ""), tuple(_members(root)))


def _nil(element: Element) -> bool:
    return any(key == NIL and text.strip(SPACE) in ("true", "1") for key, text in element.attributes)


def _simple(element: Element, name: str) -> Value:
    if _nil(element):
        return None
    try:
        return parse(name, element.text)
    except ValueError:
        raise UnexplainedError(f"the XML has {quoted(element.text)} for a value of the type {name}") from None


def item_type(array: str) -> str | None:
    """Return the name that the elements of an array have, given the name of the array.

    Return None if no array has the given name.
    """
    rest = array.removeprefix(ARRAY)
    if rest == array or not rest:
        return None
    if rest.startswith(ARRAY):
        return rest if array.count(ARRAY) <= DEPTH_LIMIT and item_type(rest) is not None else None
    found = f"{rest[0].lower()}{rest[1:]}"
    return found if rest[0].isupper() and (found in TYPES or found == ANY) else None


def _is_array(element: Element, array: str) -> bool:
    item = item_type(array)
    return not element.text.strip(SPACE) and all(child.name == ("", item) for child in element.children)


def _items(element: Element, array: str) -> list[Value]:
    if not _is_array(element, array):
        raise UnexplainedError(f"the XML has something else than its items in {quoted(array)}")
    return [_item(child) for child in element.children]


def _item(element: Element) -> Value:
    name = element.name[1]
    if _nil(element):
        return None
    if name == ANY and element.type is not None:
        namespace, name = element.type
        if namespace not in ("", SCHEMA, WSDL_TYPES) or not (name in TYPES or item_type(name)):
            return Tree(_said(element.type, ""), tuple(_members(element, with_type=False)))
    if name in TYPES:
        return _simple(element, name)
    return Tree("", tuple(_members(element))) if name == ANY else _items(element, name)


def _members(element: Element, *, with_type: bool = True) -> Iterator[tuple[str, Value]]:
    if with_type and element.type is not None:
        yield "@xsi:type", _said(element.type, "")
    for key, text in element.attributes:
        if key not in _UNSAID:
            yield f"@{_said(key, '')}", text
    if _nil(element):
        yield "#text", None
    has_elements = any(element.children)
    for name, group in groupby(
        (
            part
            for part in element.content
            if isinstance(part, Element) or not has_elements or part.strip(SPACE)
        ),
        lambda part: "#text" if isinstance(part, str) else _said(part.name, element.name[0]),
    ):
        values: list[Value] = [part if isinstance(part, str) else _member(part) for part in group]
        yield name, values[0] if len(values) == 1 else values


def _member(element: Element) -> Value:
    match members := tuple(_members(element)):
        case ():
            return ""
        case (("#text", None | str() as text),):
            return text
    return Tree("", members)


def _said(name: Name, around: str) -> str:
    """Return a name in the form that trees use; `around` is the namespace of the enclosing element."""
    namespace, local = name
    if namespace == around:
        return local
    return f"{PREFIXES[namespace]}:{local}" if namespace in PREFIXES else f"{{{namespace}}}{local}"


def _name(said: str, around: str) -> Name:
    if found := _CLARK.fullmatch(said):
        return found[1], found[2]
    prefix, _, local = said.rpartition(":")
    return (_NAMESPACES[prefix], local) if prefix in _NAMESPACES else (around, said)


def write_serialized(value: Value, kind: str) -> bytes:
    """Return a body in the form of XmlMessageFormatter.

    Args:
        kind: `xml` for the type that fits the value best, or a specific type, as in `xml:short` or `xml:ArrayOfLong`.

    Raises:
        UsageError: there is no such kind, the value does not fit it, or the value is nested deeper than DEPTH_LIMIT.
    """
    name = kind.removeprefix("xml").removeprefix(":")
    if not name and isinstance(value, Tree):
        return write_xml(_object(_name(value.name or "object", ""), value, 0))
    name = name or _natural(value)
    if name not in TYPES and name != ANY and item_type(name) is None:
        raise UsageError(f"{quoted(kind)}: there are xml:{', xml:'.join(TYPES)}, and xml:ArrayOf each")
    return write_xml(_typed(name, value, 0))


def _natural(value: Value) -> str:
    if not isinstance(value, list):
        found = ANY if value is None or isinstance(value, Tree) else type_of(value)
        if found is None:
            raise UsageError(f"{quoted(str(value))}: XML has no simple type for it")
        return found
    types = {type_of(item) for item in value if item is not None}
    if types == {"int", "long"}:
        types = {"long"}
    item = types.pop() if len(types) == 1 else None
    item = item or ANY
    return f"{ARRAY}{item[0].upper()}{item[1:]}"


def _typed(name: str, value: Value, depth: int) -> Element:
    """Return an element named after its type."""
    if depth >= DEPTH_LIMIT:
        raise UsageError(f"the value is nested deeper than {DEPTH_LIMIT} levels, which nobody reads")
    element = Element(("", name))
    if value is None:
        element.attributes.append((NIL, "true"))
    elif name == ANY and isinstance(value, Tree):
        element = _object(element.name, value, depth)
        element.type = _name(value.name, "") if value.name else element.type
    elif name == ANY:
        natural = _natural(value)
        element.content = _typed(natural, value, depth).content
        own = {"guid": WSDL_TYPES, "char": WSDL_TYPES}
        element.type = (own.get(natural, SCHEMA) if natural in TYPES else "", natural)
    elif name in TYPES:
        element.content.append(TYPES[name].form(value))
    elif isinstance(value, list):
        item = item_type(name)
        assert item is not None, "it was asked for before"
        element.content.extend(_typed(item, each, depth + 1) for each in value)
    else:
        raise UsageError(f"{quoted(str(value))} is not a list, which {name} takes")
    return element


def _object(name: Name, tree: Tree, depth: int) -> Element:
    if depth >= DEPTH_LIMIT:
        raise UsageError(f"the value is nested deeper than {DEPTH_LIMIT} levels, which nobody reads")
    element = Element(name)
    for member, value in tree.members:
        if member == "@xsi:type":
            element.type = _name(_text(value), "")
        elif member.startswith("@"):
            element.attributes.append((_name(member[1:], ""), _text(value)))
        elif member == "#text" and value is None:
            element.attributes.append((NIL, "true"))
        elif member == "#text":
            element.content.append(_text(value))
        else:
            for each in value if isinstance(value, list) else [value]:
                element.content.append(_named(_name(member, name[0]), each, depth + 1))
    return element


def _named(name: Name, value: Value, depth: int) -> Element:
    """Return a member's element, which is not named after its type."""
    if isinstance(value, Tree):
        return _object(name, value, depth)
    return Element(name, [(NIL, "true")]) if value is None else Element(name, content=[_text(value)])


def _text(value: Value) -> str:
    found = type_of(value)
    if found is None:
        raise UsageError(f"{quoted(str(value))}: XML has no text for it")
    return TYPES[found].form(value)
