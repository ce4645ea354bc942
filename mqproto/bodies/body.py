"""Reads and writes a message's body according to its body type: [MS-MQMQ] 2.2.19.3.

body type                               kind
0, the default                          xml, xml:int, xml:ArrayOfInt ... if the bytes are XML;
                                        otherwise bytes
768, BinaryMessageFormatter             binary
a number of automation.py               the name of that type, such as VT_BSTR
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.bodies.automation import BY_NAME, BY_NUMBER, VT_EMPTY
from mqproto.bodies.headers import Headers, read_headers
from mqproto.bodies.objects import BINARY_FORMATTER, read_objects
from mqproto.bodies.values import UnexplainedError, Value, to_json
from mqproto.bodies.xmlserializer import read_serialized, write_serialized

BYTES: Final = "bytes"
BINARY: Final = "binary"
_XML_BEGINS: Final = (b"<", b"\xef\xbb\xbf<", b"\xff\xfe<\0", b"\xfe\xff\0<")


@dataclass(frozen=True, slots=True)
class Body:
    """The value of a body.

    kind: the kind of the value; `write_body` accepts all kinds except "binary".
    value: the value itself; bytes if the kind is "bytes".
    reason: one line that says why the value is bytes although the body's type or first byte suggests a format;
        otherwise empty.
    headers: the headers that a service bus wrote into the extension; None if there are none.
    """

    kind: str
    value: Value
    reason: str = ""
    headers: Headers | None = None


def read_body(body: bytes, body_type: int, extension: bytes = b"") -> Body:
    """Return the value of a body of this type.

    If the body does not fit its type, return its bytes and the reason. No content is executed, looked up or fetched.
    Time and memory are proportional to the size of the body: a few seconds and at most 100 MB for 4 MiB.

    Args:
        body_type: the type stated in the MessagePropertiesHeader.
        extension: the extension in the MessagePropertiesHeader; only a service bus's headers are read from it.
    """
    headers = read_headers(extension)
    try:
        kind, value = _explained(body, body_type)
    except UnexplainedError as error:
        return Body(BYTES, body, str(error), headers)
    return Body(kind, value, "", headers)


def _explained(body: bytes, body_type: int) -> tuple[str, Value]:
    if body_type == VT_EMPTY:
        return read_serialized(body) if body.startswith(_XML_BEGINS) else (BYTES, body)
    if body_type == BINARY_FORMATTER:
        return BINARY, read_objects(body)
    if body_type not in BY_NUMBER:
        raise UnexplainedError(f"body type {body_type:#x} has no published form")
    variant = BY_NUMBER[body_type]
    return variant.name, variant.read(body)


def write_body(value: Value, kind: str) -> tuple[bytes, int]:
    """Return a body for the value, and its body type; `read_body` turns them back into the value.

    Args:
        kind: `bytes`, `xml`, `xml:` followed by a type, or a name such as `VT_I4`; case matters only after a colon.

    Raises:
        UsageError: there is no such kind, the value does not fit it, or it is "binary", which cannot be written.
    """
    name, colon, rest = kind.partition(":")
    if name.lower() == "xml":
        return write_serialized(value, f"xml{colon}{rest}"), VT_EMPTY
    if name.lower() == BYTES and not colon:
        if not isinstance(value, bytes):
            raise UsageError(f"{quoted(str(value))} is not bytes")
        return value, VT_EMPTY
    if name.lower() == BINARY and not colon:
        raise UsageError("BinaryFormatter's streams are read and never written: send xml, or a VT_ type")
    if (variant := BY_NAME.get(kind.upper())) is None:
        raise UsageError(f"{quoted(kind)}: there are bytes, xml, xml:TYPE, {', '.join(BY_NAME)}")
    return variant.write(value), variant.number


def describe(body: Body) -> dict[str, Any]:
    """Return the decoded content of a body, for `json.dumps`; empty if its format is unknown.

    content: its `kind`, and either its `value` in the form of `to_json`, or the `reason` for showing it as bytes.
    headers: their `sender` and their `fields`.
    """
    found: dict[str, Any] = {}
    if body.reason:
        found["content"] = {"kind": body.kind, "reason": body.reason}
    elif body.kind != BYTES:
        found["content"] = {"kind": body.kind, "value": to_json(body.value)}
    if body.headers is not None:
        found["headers"] = {"sender": body.headers.sender, "fields": dict(body.headers.fields)}
    return found
