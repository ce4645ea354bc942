"""Signs requests according to Standard Webhooks, so that a consumer can check their origin.

See standardwebhooks.com.

webhook-id           the producer's id of the message, or else its identifier; the same in each attempt
webhook-timestamp    when it was signed, in seconds of Unix time, so that an old request can be refused
webhook-signature    for each secret, `v1,` and the Base64 of HMAC-SHA256 over ID.TIMESTAMP.BODY
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.edges.secretfile import read_secret

PREFIX: Final = "whsec_"
SIZES: Final = range(24, 65)
"""The permitted sizes of a secret, in bytes."""
SECRETS_LIMIT: Final = 8


def secrets_in(path: Path) -> tuple[bytes, ...]:
    """Return the secrets in a file that only its owner may read.

    Each line has one secret, as `whsec_` followed by Base64. While one secret replaces another, the file has both, and
    each request has both signatures.

    Raises:
        UsageError: the file is not available, or not valid; the error text contains no secret.
    """
    lines = [line.strip() for line in read_secret(path, "the secrets").splitlines() if line.strip()]
    if not 0 < len(lines) <= SECRETS_LIMIT:
        raise UsageError(f"{path}: {len(lines)} secrets; write 1 to {SECRETS_LIMIT}, one a line")
    return tuple(_secret(path, number, line) for number, line in enumerate(lines, 1))


def _secret(path: Path, number: int, line: str) -> bytes:
    try:
        secret = base64.b64decode(line.removeprefix(PREFIX).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        secret = b""
    if len(secret) not in SIZES:
        raise UsageError(
            f"{path}: secret {number} is not the base64 of {SIZES.start} to {SIZES.stop - 1} bytes; "
            "openssl rand -base64 32 prints one"
        )
    return secret


def signed(secrets: Sequence[bytes], key: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a request; none if there is no secret."""
    if not secrets:
        return {}
    # What is signed has full stops between its parts: one in an id would let it be read as other parts.
    identity = key.replace("%", "%25").replace(".", "%2E")
    said = f"{identity}.{timestamp_s}.".encode("ascii") + body
    digests = (hmac.digest(secret, said, hashlib.sha256) for secret in secrets)
    signatures = (f"v1,{base64.b64encode(digest).decode('ascii')}" for digest in digests)
    return {
        "webhook-id": identity,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(signatures),
    }
