"""Headers (names and string values) that service buses write into a message's extension.

NServiceBus  XML, an ArrayOfHeaderInfo of HeaderInfo with Key and Value; bytes after its end are
             ignored, as in NServiceBus (github.com/Particular/NServiceBus.Transport.Msmq,
             MsmqUtilities)
Rebus        a JSON object of strings, with names that begin with rbs2-
             (github.com/rebus-org/Rebus.Msmq)
MassTransit  a JSON object of strings, including a Content-Type of application/vnd.masstransit
             (MassTransit 2 and 3, TransportMessageHeaders)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.bodies.elements import Element, read_xml, write_xml
from mqproto.bodies.values import UnexplainedError

NSERVICEBUS: Final = "NServiceBus"
REBUS: Final = "Rebus"
MASSTRANSIT: Final = "MassTransit"
EXTENSION_LIMIT_BYTES: Final = 2**20
"""The maximum size of an extension that is searched for headers."""
_END: Final = b"</ArrayOfHeaderInfo>"
_JSON_BEGINS: Final = (b"{", b"\xef\xbb\xbf{")


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of one message, in order; the value of a header without a value is None.

    sender: the service bus: NSERVICEBUS, REBUS or MASSTRANSIT.
    """

    sender: str
    fields: Mapping[str, str | None]


def read_headers(extension: bytes) -> Headers | None:
    """Return the headers in an extension; None if it has no headers of any of these kinds."""
    if len(extension) > EXTENSION_LIMIT_BYTES:
        return None
    if extension.startswith(_JSON_BEGINS):
        return _from_json(extension)
    end = extension.rfind(_END)
    if end < 0:
        return None
    try:
        root = read_xml(extension[: end + len(_END)])
    except UnexplainedError:
        return None
    fields = {}
    for info in root.children:
        parts = {child.name[1]: child for child in info.children}
        if "Key" in parts:
            fields[parts["Key"].text] = parts["Value"].text if "Value" in parts else None
    return Headers(NSERVICEBUS, fields)


def _from_json(extension: bytes) -> Headers | None:
    try:
        found = json.loads(extension.decode("utf-8-sig"))
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(
        value is None or isinstance(value, str) for value in found.values()
    ):
        return None
    if any(name.startswith("rbs2-") for name in found):
        return Headers(REBUS, found)
    content_type = {name.lower(): value for name, value in found.items()}.get("content-type")
    return Headers(MASSTRANSIT, found) if content_type and "masstransit" in content_type else None


def write_headers(headers: Headers) -> bytes:
    """Return an extension with these headers; `read_headers` turns it back into them.

    Raises:
        UsageError: the sender is unknown or cannot have headers with these names, or XML or JSON cannot represent a
            text.
    """
    if headers.sender == NSERVICEBUS:
        root = Element(("", "ArrayOfHeaderInfo"))
        for name, value in headers.fields.items():
            info = Element(("", "HeaderInfo"), content=[Element(("", "Key"), content=[name])])
            if value is not None:
                info.content.append(Element(("", "Value"), content=[value]))
            root.content.append(info)
        if not root.content:
            root.content.append("")  # Readers find the headers by their end tag.
        return write_xml(root)
    try:
        extension = json.dumps(dict(headers.fields), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("a header has half of a surrogate pair, which no UTF-8 holds") from None
    if (found := _from_json(extension)) is None or found.sender != headers.sender:
        raise UsageError(
            f"{quoted(headers.sender)}: there are NServiceBus, Rebus with names that begin with rbs2-, and MassTransit"
            " with a Content-Type of its own"
        )
    return extension
