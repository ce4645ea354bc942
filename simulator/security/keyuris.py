"""Names of private keys in tokens: PKCS #11 URIs (RFC 7512), and the PEM files that have one in the place of a key.

    pkcs11:token=office;object=aes?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:/etc/mqproto/pin

Before the question mark stands which token and which object are meant, behind it how they are reached. A PIN itself
stands nowhere: what is typed others see in `ps`, and a topology is read by many. No error repeats more of a URI than
the names of its attributes and what cannot be a PIN.

In a file such a URI is PEM with the label PKCS#11 PROVIDER URI, which OpenSSL's pkcs11-provider reads and makes
(`uri2pem`): a SEQUENCE of VisibleString and UTF8String. So a file of a key stays a file of a key for both.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from mqproto.base.errors import UsageError
from mqproto.base.foreign import shown

SCHEME: Final = "pkcs11:"
OF_TOKEN: Final = ("token", "serial", "manufacturer", "model")
OF_OBJECT: Final = ("object", "id", "type")
NOT_LOOKED_AT: Final = (
    "library-description",
    "library-manufacturer",
    "library-version",
    "slot-description",
    "slot-id",
    "slot-manufacturer",
)
"""What RFC 7512 has beside these. It would be wrong to pass over what somebody asks for."""
QUERY: Final = ("module-path", "pin-source")
LABEL: Final = "PKCS#11 PROVIDER URI"
DESCRIPTION: Final = b"PKCS#11 Provider URI v1.0"
_PEM: Final = re.compile(
    rb"-----BEGIN PKCS#11 PROVIDER URI-----\s(.*?)-----END PKCS#11 PROVIDER URI-----", re.DOTALL
)
_SEQUENCE, _VISIBLE_STRING, _UTF8_STRING = 0x30, 0x1A, 0x0C


@dataclass(frozen=True, slots=True)
class KeyUri:
    """Which key in which token, and how it is reached.

    text: the URI as it was written.
    token, serial, manufacturer, model: of the token; empty where any will do.
    object, id: CKA_LABEL and CKA_ID of the private key; empty where any will do.
    module: the library that speaks for the token.
    pin_source: the file with its PIN; None where the token asks for none.
    """

    text: str
    token: str
    serial: str
    manufacturer: str
    model: str
    object: str
    id: bytes
    module: Path
    pin_source: Path | None

    def __str__(self) -> str:
        """As errors name it: `key aes of token office`."""
        name = shown(self.object) if self.object else f"with id {self.id.hex()}"
        return f"key {name} of {self.where}"

    @property
    def where(self) -> str:
        """The token, as errors name it."""
        return f"token {shown(self.token)}" if self.token else f"token with serial {shown(self.serial)}"


def is_uri(text: str) -> bool:
    return text[: len(SCHEME)].casefold() == SCHEME


def parse_uri(text: str) -> KeyUri:
    """What a PKCS #11 URI says.

    Raises:
        UsageError: it is none, or says too little, or more than is looked at. The text has no PIN in it.
    """
    if not is_uri(text):
        raise UsageError("no PKCS #11 URI: it begins with pkcs11:")
    if "pin-value" in text.casefold():
        raise UsageError(
            "pin-value would show the PIN to everybody who sees the URI: put the PIN into a file of mode 600, and name "
            "that: pin-source=file:/etc/mqproto/pin"
        )
    path, _, query = text[len(SCHEME) :].partition("?")
    names = _attributes(path, ";", (*OF_TOKEN, *OF_OBJECT))
    reached = _attributes(query, "&", QUERY)
    if names.get("type", b"private") != b"private":
        raise UsageError("a PKCS #11 URI: type has to be private, or is left out")
    found = {name: _utf8(name, names.get(name, b"")) for name in (*OF_TOKEN, "object")}
    if not found["token"] and not found["serial"]:
        raise UsageError(
            "a PKCS #11 URI: which token? Add token=LABEL or serial=NUMBER, so that no other is tried with the PIN"
        )
    if not found["object"] and not names.get("id"):
        raise UsageError("a PKCS #11 URI: which key? Add object=LABEL or id=%01")
    module = _utf8("module-path", reached.get("module-path", b""))
    if not module.startswith("/"):
        raise UsageError(
            "a PKCS #11 URI: which library? Add ?module-path= and its whole path, such as "
            "/usr/lib/softhsm/libsofthsm2.so"
        )
    source = _utf8("pin-source", reached["pin-source"]) if "pin-source" in reached else None
    return KeyUri(
        text=text,
        id=names.get("id", b""),
        module=Path(module),
        pin_source=None if source is None else _file(source),
        **found,
    )


def in_file(uri: KeyUri) -> bytes:
    """What a file has in the place of a private key."""
    text = uri.text.encode("utf-8")
    parts = _der(_VISIBLE_STRING, DESCRIPTION) + _der(_UTF8_STRING, text)
    body = base64.encodebytes(_der(_SEQUENCE, parts)).replace(b"\n", b"")
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    label = LABEL.encode("ascii")
    return b"\n".join([text, b"-----BEGIN %b-----" % label, *lines, b"-----END %b-----" % label, b""])


def is_in_file(data: bytes) -> bool:
    """Whether a file has a PKCS #11 URI in the place of a private key."""
    return LABEL.encode("ascii") in data


def uri_in_file(data: bytes) -> KeyUri:
    """The URI that a file has in the place of a private key.

    Raises:
        UsageError: there is none, or it is of no use.
    """
    found = _PEM.search(data)
    try:
        parts = _inner(_SEQUENCE, base64.b64decode(found[1] if found else b"", validate=False))[0]
        description, rest = _inner(_VISIBLE_STRING, parts)
        text, rest = _inner(_UTF8_STRING, rest)
        if description != DESCRIPTION or rest:
            raise ValueError("of another version")
        return parse_uri(text.decode("utf-8"))
    except UsageError:
        raise
    except (ValueError, IndexError):
        raise UsageError(f"its {LABEL} is damaged: import the key again, by its URI") from None


def quoted(text: str) -> str:
    """A label as it stands in a URI."""
    return quote(text, safe="")


def _attributes(part: str, between: str, known: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for attribute in part.split(between) if part else ():
        name, equals, value = attribute.partition("=")
        if name not in known:
            raise UsageError(f"a PKCS #11 URI: {_why_unknown(name)}")
        if not equals or not value:
            raise UsageError(f"a PKCS #11 URI: {name} has no value")
        if name in found:
            raise UsageError(f"a PKCS #11 URI: {name} stands in it twice")
        if re.search(r"%(?![0-9A-Fa-f]{2})", value) or not value.isprintable() or " " in value:
            raise UsageError(
                f"a PKCS #11 URI: {name} has a character that has to be written as % and two digits"
            )
        found[name] = unquote_to_bytes(value)
    return found


def _why_unknown(name: str) -> str:
    if name == "module-name":
        return "module-name is not looked up here; write module-path= and the whole path of the library"
    if name in NOT_LOOKED_AT:
        return f"{name} is not looked at here; name the token by {', '.join(OF_TOKEN)}"
    where = "behind the question mark" if name in (*OF_TOKEN, *OF_OBJECT) else "before it"
    if name in (*OF_TOKEN, *OF_OBJECT, *QUERY):
        return f"{name} may not stand {where}"
    known = ", ".join((*OF_TOKEN, *OF_OBJECT, *QUERY))
    return f"{shown(name)!r} is no attribute; there are {known}"


def _utf8(name: str, value: bytes) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"a PKCS #11 URI: {name} is no UTF-8") from None
    if "\0" in text:
        raise UsageError(f"a PKCS #11 URI: {name} has a NUL in it")
    return text


def _file(source: str) -> Path:
    """The file that a pin-source names: a path, or a URI of one."""
    path = source
    if source.startswith("file:"):
        path = source.removeprefix("file:")
        path = path.removeprefix("//") if path.startswith("///") else path
    if not path.startswith("/"):
        raise UsageError(
            "a PKCS #11 URI: pin-source has to be a file with its whole path, such as file:/etc/mqproto/pin"
        )
    return Path(path)


def _der(tag: int, value: bytes) -> bytes:
    size = len(value)
    if size < 0x80:
        return bytes((tag, size)) + value
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + value


def _inner(tag: int, data: bytes) -> tuple[bytes, bytes]:
    """What an element has, and what stands behind it.

    Raises:
        ValueError: it is another, or longer than there are bytes.
        IndexError: it ends too early.
    """
    if data[0] != tag:
        raise ValueError("another tag")
    size, start = data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise ValueError("it ends too early")
    return data[start : start + size], data[start + size :]
