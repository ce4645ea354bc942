"""A message's claims about its sender, its signature and its encryption.  [MS-MQMQ] 2.2.20.6

Anybody can read these claims. A SecurityHeader alone proves nothing: every message from .NET has one, with the SID of
its sender, but no signature. It takes a key to verify a signature: see keyring.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mqproto.wire import NULL_GUID, Guid, SecurityHeader, UserMessage, guid_text
from mqproto.wire.layouts.keyblobs import CIPHER_NAMES, RC2, RC4
from mqproto.wire.layouts.properties import HASH_NAMES
from mqproto.wire.layouts.security import QUEUE_MANAGER, SID

SENDER_KINDS: Final = {SID: "SID", QUEUE_MANAGER: "queue manager"}
"""The names of the values of ST, the type of a sender's identifier."""
KEY_BITS: Final = {1: 40, 3: 128}
SIZED_CIPHERS: Final = (RC2, RC4)
"""The ciphers whose key length depends on PrivacyLevel.  [MS-MQQB] 3.1.7.1.5"""


class ProtectionColumns(NamedTuple):
    """The columns of a row that describe a message's protection, as explained in
    `mqproto.captures.decode.row.PacketRow`.
    """

    security_header: bool
    sender_kind: str | None
    sender_id: str | None
    signed: str | None
    encrypted: str | None


def protection_of(message: UserMessage) -> ProtectionColumns:
    """Return a message's claims about its protection, true or not."""
    security = message.security
    if security is None:
        return ProtectionColumns(False, None, None, _signed(message), None)
    kind = SENDER_KINDS.get(security.sender_id_type)
    return ProtectionColumns(True, kind, _sender_id(security), _signed(message), _encrypted(message))


def signature_of(message: UserMessage) -> bytes:
    """Return a message's signature, from whichever header has it; empty if there is none. [MS-MQMQ] 2.2.20.3,
    2.2.20.6
    """
    security, listed = message.security, message.multi_queue_format
    found = security.signature if security is not None else b""
    return found or (listed.signature.signature if listed is not None else b"")


def _sender_id(security: SecurityHeader) -> str | None:
    if security.sender_id_type == QUEUE_MANAGER and len(security.sender_id) == len(NULL_GUID):
        return guid_text(Guid(security.sender_id))
    return security.sid or None


def _signed(message: UserMessage) -> str | None:
    number = message.properties.hash_algorithm
    return HASH_NAMES.get(number, f"{number:#x}") if signature_of(message) else None


def _encrypted(message: UserMessage) -> str | None:
    if message.security is None or not message.security.body_encrypted:
        return None
    number, bits = message.properties.encryption_algorithm, KEY_BITS.get(message.properties.privacy_level)
    name = CIPHER_NAMES.get(number, f"{number:#x}")
    return f"{name}-{bits}" if bits and number in SIZED_CIPHERS else name
