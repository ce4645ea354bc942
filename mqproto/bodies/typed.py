"""Makes bodies from a text and its kind, both as people enter them.

xml, xml:string, VT_BSTR, VT_LPSTR, VT_LPWSTR         the text, UTF-8
xml:int ..., VT_I4 ..., VT_CY, VT_DATE, VT_CLSID      the value in the form of `lexical.py`
xml:json, xml:ArrayOfInt ...                          the value as JSON in the form of `to_json`
bytes, VT_ARRAY|VT_UI1, VT_STREAMED_OBJECT, 8, 0x11   the bytes as they are; a number is the body
                                                      type itself
"""

from __future__ import annotations

import json
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.bodies.automation import BY_NAME
from mqproto.bodies.body import write_body
from mqproto.bodies.lexical import TYPES, parse
from mqproto.bodies.values import UnexplainedError, Value, from_json
from mqproto.bodies.xmlserializer import item_type

_FORMS: Final = {
    "VT_BOOL": "boolean",
    "VT_R4": "double",
    "VT_R8": "double",
    "VT_CY": "decimal",
    "VT_DATE": "dateTime",
    "VT_CLSID": "guid",
    "VT_BSTR": "string",
    "VT_LPSTR": "string",
    "VT_LPWSTR": "string",
}
"""For some body types of automation.py, the simple type that is used to parse a text.

All other body types take numbers or bytes.
"""


def body_of_text(text: bytes, kind: str) -> tuple[bytes, int]:
    """Return the body for a text, and its body type.

    Raises:
        UsageError: there is no such kind, or the text is not a value of this kind.
    """
    if (number := _number(kind)) is not None:
        return text, number
    name, _, form = kind.partition(":")
    variant = kind.upper()
    if name.lower() == "xml":
        return write_body(_of_xml(text, form or "string"), "xml" if form == "json" else kind)
    if variant not in BY_NAME or variant.endswith("|VT_UI1"):
        return write_body(text, kind)
    if variant == "VT_NULL":
        return write_body(text or None, kind)
    if variant == "VT_STREAMED_OBJECT":
        try:
            return write_body(BY_NAME[variant].read(text), variant)
        except UnexplainedError as error:
            raise UsageError(str(error)) from None
    return write_body(
        _parsed(text, _FORMS.get(variant, "unsignedLong" if "U" in variant else "long")), variant
    )


def _number(kind: str) -> int | None:
    try:
        number = int(kind, 0)
    except ValueError:
        return None
    if not 0 <= number <= 0xFFFFFFFF:
        raise UsageError(f"body type {quoted(kind)}: a number of 32 bits, or a name such as xml or VT_BSTR")
    return number


def _of_xml(text: bytes, form: str) -> Value:
    if form in TYPES:
        return _parsed(text, form)
    if form != "json" and item_type(form) is None:
        return None
    try:
        return from_json(json.loads(text))
    except UsageError:
        raise
    except (ValueError, RecursionError):
        raise UsageError(
            f"{quoted(text.decode('utf-8', 'replace'))} is not JSON, which xml:{form} takes"
        ) from None


def _parsed(text: bytes, form: str) -> Value:
    try:
        # People type a char as itself; XML has its number.
        found = text.decode("utf-8")
        return found if form == "char" else parse(form, found)
    except ValueError:
        said = text.decode("utf-8", "replace")
        raise UsageError(f"{quoted(said)} is not of type {form}" + " of UTF-8" * (form == "string")) from None
