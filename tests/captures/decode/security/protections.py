"""Messages with every kind of protection that can be read without keys, and the words for each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from mqproto.captures.decode.security.words import ProtectionColumns
from mqproto.wire import SecurityHeader, UserMessage, sid_from_text
from mqproto.wire.layouts.keyblobs import AES_256, RC2, RC4
from mqproto.wire.layouts.security import QUEUE_MANAGER, SID
from tests.examples import SENDER, a_full_message, a_user_message

USER: Final = "S-1-5-21-1-2-3-1000"
MANAGER: Final = "00000000-0000-0000-0000-00000000000A"
NOTHING: Final = ProtectionColumns(False, None, None, None, None)


def with_security(
    kind: int = SID, sender: bytes | None = None, *, encrypted: bool = False, **fields: Any
) -> UserMessage:
    """Return a message with a SecurityHeader. The other fields belong to this header or to the properties."""
    message = a_user_message(body_type=8)
    message.user.has_security = True
    header = SecurityHeader(sender_id=sid_from_text(USER) if sender is None else sender)
    header.sender_id_type, header.body_encrypted, header.has_security_data = kind, encrypted, True
    for name, value in fields.items():
        setattr(header if hasattr(header, name) else message.properties, name, value)
    message.security = header
    return message


def listed(signature: bytes) -> UserMessage:
    """Return a message that has its signature, if any, next to the list of its destinations."""
    message = replace(a_full_message(), security=None)
    message.user.has_security = False
    assert message.multi_queue_format is not None
    message.multi_queue_format.signature.signature = signature
    return message


def encrypted(level: int, algorithm: int) -> UserMessage:
    return with_security(encrypted=True, privacy_level=level, encryption_algorithm=algorithm)


EXAMPLES: Final[dict[str, tuple[UserMessage, ProtectionColumns]]] = {
    "nothing": (a_user_message(), NOTHING),
    "of .NET": (with_security(), ProtectionColumns(True, "SID", USER, None, None)),
    "a great authority": (
        with_security(sender=b"\1\1\x12\x34\0\0\0\5\x09\0\0\0"),
        ProtectionColumns(True, "SID", "S-1-0x123400000005-9", None, None),
    ),
    "a SID that is none": (
        with_security(sender=b"\1\2\0\0\0\0\0\5"),
        ProtectionColumns(True, "SID", None, None, None),
    ),
    "a SID without numbers": (
        with_security(sender=b"\1\0\0\0\0\0\0\5"),
        ProtectionColumns(True, "SID", None, None, None),
    ),
    "of a queue manager": (
        with_security(QUEUE_MANAGER, SENDER),
        ProtectionColumns(True, "queue manager", MANAGER, None, None),
    ),
    "a GUID that is none": (
        with_security(QUEUE_MANAGER, SENDER[:15]),
        ProtectionColumns(True, "queue manager", None, None, None),
    ),
    "signed": (with_security(signature=b"signed"), ProtectionColumns(True, "SID", USER, "SHA-512", None)),
    "signed with a broken hash": (
        with_security(signature=b"signed", hash_algorithm=0x8001),
        ProtectionColumns(True, "SID", USER, "MD2", None),
    ),
    "signed in an unknown way": (
        with_security(0, b"", signature=b"signed", hash_algorithm=7),
        ProtectionColumns(True, None, None, "0x7", None),
    ),
    "a certificate alone": (
        with_security(0, b"", sender_cert=b"c"),
        ProtectionColumns(True, None, None, None, None),
    ),
    "signed beside its list": (listed(b"signed"), ProtectionColumns(False, None, None, "SHA-512", None)),
    "with a list, not signed": (listed(b""), NOTHING),
    "encrypted": (encrypted(5, AES_256), ProtectionColumns(True, "SID", USER, None, "AES-256")),
    "by the base provider": (encrypted(1, RC2), ProtectionColumns(True, "SID", USER, None, "RC2-40")),
    "by the enhanced one": (encrypted(3, RC4), ProtectionColumns(True, "SID", USER, None, "RC4-128")),
    "by nobody known": (encrypted(2, RC4), ProtectionColumns(True, "SID", USER, None, "RC4")),
    "with a cipher nobody knows": (
        encrypted(3, 0x1234),
        ProtectionColumns(True, "SID", USER, None, "0x1234"),
    ),
    "AU and AS, which say nothing": (
        with_security(authenticated=True, signature_type=5),
        ProtectionColumns(True, "SID", USER, None, None),
    ),
}
"""The examples, keyed by description."""
