"""Simple types in the form that XML uses.  [XMLSCHEMA2] 3.2, 3.3

Their names are from XML Schema or, for types that it lacks, from .NET.

long 5   unsignedByte 255   boolean true   double NaN   decimal 2.50   char 65   base64Binary AQI=
dateTime 2024-01-02T03:04:05.1234567Z   guid 557358d1-5055-9591-9549-97b6e611ea26
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.bodies.values import DateTime, Value

SPACE: Final = " \t\r\n"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})")
_FLOAT: Final = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,4})?")
_DECIMAL_BITS: Final = 96
_DECIMAL_SCALE: Final = 28
"""The maximum number of digits after the decimal point of a .NET decimal."""


@dataclass(frozen=True, slots=True)
class SimpleType:
    """A type whose values are written as one text.

    parse: a function that returns the value of a text without surrounding white space, or raises ValueError.
    form: a function that returns the text of a value, or raises UsageError.
    """

    name: str
    parse: Callable[[str], Value]
    form: Callable[[Value], str]


def _refuse(name: str, value: object) -> UsageError:
    return UsageError(f"{quoted(str(value))} is not of type {name}")


def _integer(name: str, low: int, high: int) -> SimpleType:
    def parse(text: str) -> int:
        if _INTEGER.fullmatch(text) and low <= (found := int(text)) <= high:
            return found
        raise ValueError(text)

    def form(value: Value) -> str:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return str(value)
        raise UsageError(
            f"{quoted(str(value))} is not of type {name}, which is a number from {low} to {high}"
        )

    return SimpleType(name, parse, form)


def _parse_boolean(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return text in ("true", "1")


def _form_boolean(value: Value) -> str:
    if not isinstance(value, bool):
        raise _refuse("boolean", value)
    return "true" if value else "false"


def _parse_float(text: str) -> float:
    named = {"NaN": "nan", "INF": "inf", "-INF": "-inf"}.get(text)
    if named is None and not _FLOAT.fullmatch(text):
        raise ValueError(text)
    return float(named or text)


def _parse_single(text: str) -> float:
    found = _parse_float(text)
    try:
        struct.pack("<f", found)
    except OverflowError:
        raise ValueError(text) from None
    return found


def _form_float(value: Value) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse("double", value)
    try:
        text = repr(float(value))
    except OverflowError:
        raise _refuse("double", value) from None
    return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(text, text)


def _form_single(value: Value) -> str:
    text = _form_float(value)
    try:
        _parse_single(text)
    except ValueError:
        raise _refuse("float", value) from None
    return text


def _parse_decimal(text: str) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    number = Decimal(text)
    _form_decimal(number)  # .NET would round more digits, which changes the value.
    return number


def _form_decimal(value: Value) -> str:
    number = Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(number, Decimal) or not number.is_finite():
        raise _refuse("decimal", value)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "it is finite"
    if -exponent > _DECIMAL_SCALE or number.adjusted() > _DECIMAL_SCALE:
        raise UsageError(f"{number} has more digits than a decimal, which has 28")
    text = format(number, "f")
    if int(text.replace(".", "").lstrip("-")) >> _DECIMAL_BITS:
        raise UsageError(f"{number} has more digits than a decimal, which has 28")
    return text


def _parse_char(text: str) -> str:
    if not _INTEGER.fullmatch(text) or not 0 <= int(text) <= 0xFFFF or 0xD800 <= int(text) <= 0xDFFF:
        raise ValueError(text)
    return chr(int(text))


def _form_char(value: Value) -> str:
    if not isinstance(value, str) or len(value) != 1 or ord(value) > 0xFFFF or 0xD800 <= ord(value) <= 0xDFFF:
        raise UsageError(f"{quoted(str(value))} is not a char, which is one character up to U+FFFF")
    return str(ord(value))


def _form_string(value: Value) -> str:
    if not isinstance(value, str):
        raise _refuse("string", value)
    return value


def _parse_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(re.sub(f"[{SPACE}]+", "", text), validate=True)
    except binascii.Error:
        raise ValueError(text) from None


def _form_bytes(value: Value) -> str:
    if not isinstance(value, bytes):
        raise _refuse("base64Binary", value)
    return base64.b64encode(value).decode("ascii")


def _form_time(value: Value | datetime) -> str:
    time = DateTime.of(value) if isinstance(value, datetime) else value
    if not isinstance(time, DateTime):
        raise _refuse("dateTime", value)
    # XML cannot say "the sender's zone", so the time goes without one.
    return str(time).removesuffix(" local")


def _parse_time(text: str) -> DateTime:
    if text.endswith("local"):
        raise ValueError(text)
    return DateTime.parse(text)


def _form_guid(value: Value) -> str:
    if not isinstance(value, UUID):
        raise _refuse("guid", value)
    return str(value)


def _parse_guid(text: str) -> UUID:
    if len(text) != 36:
        raise ValueError(text)
    return UUID(text)


TYPES: Final = {
    simple.name: simple
    for simple in (
        SimpleType("string", str, _form_string),
        SimpleType("boolean", _parse_boolean, _form_boolean),
        _integer("byte", -(2**7), 2**7 - 1),
        _integer("unsignedByte", 0, 2**8 - 1),
        _integer("short", -(2**15), 2**15 - 1),
        _integer("unsignedShort", 0, 2**16 - 1),
        _integer("int", -(2**31), 2**31 - 1),
        _integer("unsignedInt", 0, 2**32 - 1),
        _integer("long", -(2**63), 2**63 - 1),
        _integer("unsignedLong", 0, 2**64 - 1),
        SimpleType("float", _parse_single, _form_single),
        SimpleType("double", _parse_float, _form_float),
        SimpleType("decimal", _parse_decimal, _form_decimal),
        SimpleType("char", _parse_char, _form_char),
        SimpleType("dateTime", _parse_time, _form_time),
        SimpleType("guid", _parse_guid, _form_guid),
        SimpleType("base64Binary", _parse_bytes, _form_bytes),
    )
}
"""The simple types, keyed by name; `char` and `guid` are from .NET."""


def parse(name: str, text: str) -> Value:
    """Return the value of a text, ignoring white space around it unless the type is string.

    Raises:
        ValueError: the text is not a value of the type.
    """
    return TYPES[name].parse(text if name == "string" else text.strip(SPACE))


def type_of(value: Value) -> str | None:
    """Return the simple type that fits a value best; None if none fits."""
    match value:
        case bool():
            return "boolean"
        case int():
            fits = ("int", "long", "unsignedLong")
            return next((name for name in fits if _fits(name, value)), None)
        case float():
            return "double"
        case str():
            return "string"
        case bytes():
            return "base64Binary"
        case Decimal():
            return "decimal"
        case UUID():
            return "guid"
        case DateTime() | datetime():
            return "dateTime"
    return None


def _fits(name: str, value: int) -> bool:
    try:
        TYPES[name].form(value)
    except UsageError:
        return False
    return True
