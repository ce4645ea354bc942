"""What a trigger uses to reach URLs: the authorities that it trusts, and its own credentials."""

from __future__ import annotations

import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import msgspec

from mqproto.base.errors import UsageError
from mqproto.simulator.client.envelope import HEADER_NAME
from mqproto.simulator.edges.forwarding import ENCODING, RESERVED, RESERVED_PREFIXES, Forwarding
from mqproto.simulator.edges.httpclient import PORTS
from mqproto.simulator.edges.secretfile import read_secret
from mqproto.simulator.node.tls.certificates import show

OWN: Final = frozenset({"accept", "authorization", "cookie", "user-agent"})
"""The headers that are never forwarded from a producer, but that a trigger may set itself."""
OWN_LIMIT_CHARS: Final = 16_384
"""The maximum length, in characters, of the names and values of all headers together.

Servers refuse more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The credentials for a URL.

    forwarding: the headers of a message that are passed on.
    headers: the trigger's own headers, keyed by their names in lower case; a message's headers do not replace them.
    secrets: the secrets; every request is signed with each of them.
    trusted: the TLS context that checks certificates; None for the authorities that httpx trusts.
    """

    forwarding: Forwarding = field(default_factory=Forwarding)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    trusted: ssl.SSLContext | None = None


def own_headers(path: Path) -> dict[str, str]:
    """Return the headers in a TOML file that only its owner may read.

        Authorization = "Bearer 3f9c..."
        X-Api-Key = "..."

    Raises:
        UsageError: the file is not available, or not valid; the error text contains no secret.
    """
    text = read_secret(path, "the headers")
    try:
        found = msgspec.convert(tomllib.loads(text), dict[str, str])
    except tomllib.TOMLDecodeError:
        raise UsageError(f'{path}: this is not TOML; write lines such as X-Api-Key = "..."') from None
    except msgspec.ValidationError:
        raise UsageError(f'{path}: a header is not text; write lines such as X-Api-Key = "..."') from None
    if sum(len(name) + len(value) for name, value in found.items()) > OWN_LIMIT_CHARS:
        raise UsageError(f"{path}: the headers have more than {OWN_LIMIT_CHARS:,} characters: leave some out")
    for name, value in found.items():
        small = name.casefold()
        if not HEADER_NAME.fullmatch(small):
            raise UsageError(f"{path}: {name[:40]!a} is not a header's name")
        if small in RESERVED - OWN or small == ENCODING or small.startswith(RESERVED_PREFIXES):
            raise UsageError(f"{path}: {name} is the trigger's to say: leave it out")
        if not (value.isascii() and value.isprintable() and value.strip() == value != ""):
            raise UsageError(f"{path}: {name} must have a value of printable ASCII characters")
    if len({name.casefold() for name in found}) < len(found):
        raise UsageError(f"{path}: a header is there twice: leave one out")
    return {name.casefold(): value for name, value in found.items()}


def trusting(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return the TLS context with the trusted authorities and our certificate.

    Args:
        ca: a PEM file of authorities, instead of all others. If None, those of SSL_CERT_FILE or SSL_CERT_DIR are used
            or, if these are not set, those of certifi.
        certificate, key: PEM files; None for none.

    Raises:
        UsageError: a file is missing or invalid, or others can read the key.
    """
    if (certificate is None) != (key is None):
        raise UsageError("--certificate and --key belong together: type both")
    try:
        context = ssl.create_default_context(cafile=ca) if ca else httpx.create_ssl_context()
    except OSError as error:
        # An SSLError is one: there is a file, and no certificate in it.
        why = "there is no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise UsageError(f"{ca or 'SSL_CERT_FILE'}: {why}; name a PEM file of authorities") from None
    if certificate and key:
        show(context, certificate, key)
    return context


def is_same_origin(one: str, other: str) -> bool:
    """Return whether two URLs belong to the same server.  [RFC 6454] 4"""
    return _origin(one) == _origin(other)


def _origin(url: str) -> tuple[str, str, int | None]:
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.host, parsed.port or PORTS.get(parsed.scheme)
