"""Signs and verifies whole messages: decides which bytes of a message a signature covers.

[MS-MQMQ] 2.5, [MS-MQQB] 3.1.7.1.4, 3.1.5.8.3

A field is hashed as it is in the packet, from its first byte to its last. Numbers are little-endian, a label includes
its NUL, and a queue's name excludes the padding after it. An absent field is left out. Bits become bytes in the way
that the specification gives. The body is hashed in
clear: 3.1.7.1 signs before it encrypts. So a verifier must decrypt first, although 3.1.5.8.3 gives the opposite order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.security.certificates import Certificate, certificate_in
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.refusals import ProtectionError, bad_signature
from mqproto.security.signatures import SHA_512, sign, verify
from mqproto.wire import (
    NULL_GUID,
    QueueName,
    SecurityHeader,
    SeenField,
    UserMessage,
    encode_packet,
    inspect_packet,
    user_message,
)
from mqproto.wire.layouts.security import NO_SENDER


class SignatureKind(IntEnum):
    """The kinds of signatures, by the fields that they cover.

    The numbers are those of SecurityHeader.Flags.AS in verified messages.
    """

    MSMQ_10 = 1
    MSMQ_20 = 3
    MSMQ_30 = 5


def signed(
    message: UserMessage,
    own: KeyPair,
    certificate: Certificate,
    *,
    kind: SignatureKind = SignatureKind.MSMQ_20,
    hash_algorithm: int = SHA_512,
    sender_id: bytes = b"",
    sender_id_type: int = NO_SENDER,
) -> UserMessage:
    """Return the message with a signature and the certificate that verifies it.

    The body must not be encrypted yet. If the message lists its destinations, the signature has the kind of MSMQ 3.0
    and is next to the list (3.1.7.1.4).

    Args:
        sender_id: a SID, or the GUID of a queue manager, as `sender_id_type` says.

    Raises:
        UsageError: the certificate does not belong to the key, or the hash does not fit the key.
    """
    if certificate.key != own.public:
        raise UsageError("the certificate is not that of the key: name the one that is")
    security = replace(message.security or SecurityHeader(), sender_cert=certificate.der, sender_id=sender_id)
    security.sender_id_type = sender_id_type
    security.default_provider = security.has_security_data = True
    user = replace(message.user)
    user.has_security = True
    properties = replace(message.properties, hash_algorithm=hash_algorithm)
    message = replace(message, user=user, security=security, properties=properties)
    listed = message.multi_queue_format
    if listed is None:
        security.signature = sign(hash_algorithm, own, hashed(message, kind))
        return message
    signature = sign(hash_algorithm, own, hashed(message, SignatureKind.MSMQ_30))
    beside = replace(listed.signature, signature=signature)
    # By [MS-MQMQ] 2.2.19.1 headers begin on 4-byte boundaries, and a SessionHeader may follow the signature.
    return replace(
        message,
        multi_queue_format=replace(listed, signature=beside),
        trailing=bytes(-len(signature) % 4) + message.trailing,
    )


def verified(message: UserMessage) -> tuple[SignatureKind, Certificate]:
    """Verify a message with its own certificate. Return the kind of the signature, and the certificate.

    This does not prove who owns the certificate.

    Raises:
        ProtectionError: the message is not signed, or not by the owner of its certificate.
    """
    if not any(_signatures(message)):
        raise bad_signature("the message is not signed")
    assert message.security is not None, "without one there is no certificate, and no signature was found"
    certificate = certificate_in(message.security.sender_cert)
    kind, _ = verified_by(message, [certificate.key])
    return kind, certificate


def verified_by(message: UserMessage, keys: Sequence[PublicKey]) -> tuple[SignatureKind, PublicKey]:
    """Return the kind of a message's signature, and the first of the keys that verifies it.

    keys: at least one key.

    Raises:
        ProtectionError: the message is not signed, or not with one of these keys. If its signature cannot be checked,
            the class is NACK_UNSUPPORTED_CRYPTO_PROVIDER.
    """
    refusal = bad_signature("the message is not signed")
    for kind, signature in _signatures(message):
        data = hashed(message, kind)
        for key in keys:
            try:
                verify(message.properties.hash_algorithm, key, data, signature)
            except ProtectionError as error:
                refusal = error
            else:
                return kind, key
    try:
        raise refusal
    finally:
        del refusal  # As in guard.py.


def _signatures(message: UserMessage) -> Iterator[tuple[SignatureKind, bytes]]:
    """Yield the kinds that a message's signature may have, in the order in which to try them.  3.1.5.8.3

    Each comes with the signature's bytes. A signature of MSMQ 3.0 may also be in the SecurityHeader, according to
    [MS-MQMQ] 2.2.20.6.
    """
    security, listed = message.security, message.multi_queue_format
    if security is None:
        return
    if security.signature:
        for kind in (SignatureKind.MSMQ_20, SignatureKind.MSMQ_10, SignatureKind.MSMQ_30):
            yield kind, security.signature
    elif listed is not None and listed.signature.signature:
        yield SignatureKind.MSMQ_30, listed.signature.signature


def hashed(message: UserMessage, kind: SignatureKind) -> bytes:
    """Return the bytes that a signature of this kind covers.  [MS-MQMQ] 2.5.1, 2.5.2, 2.5.3"""
    user, properties = message.user, message.properties
    label = b"" if properties.label is None else f"{properties.label}\0".encode("utf-16-le", "surrogatepass")
    types = user.destination_type, user.admin_type, user.response_type
    destination, admin, response = _names_of(
        types, user.destination_queue, user.admin_queue, user.response_queue
    )
    parts = [
        properties.correlation_id,
        _NUMBER(properties.application_tag),
        properties.message_body,
        label,
        response,
        admin,
    ]
    if kind is SignatureKind.MSMQ_30:
        parts += [properties.extension_data, _list_of(message)]
    if kind is not SignatureKind.MSMQ_10:
        parts += [user.source_queue_manager, _numbers(message), user.connector_type or b""]
    if kind is SignatureKind.MSMQ_20:
        parts.append(destination)
    return b"".join(parts)


@lru_cache(maxsize=1_024)
def _names_of(
    types: tuple[int, int, int], destination: QueueName, admin: QueueName, response: QueueName
) -> tuple[bytes, bytes, bytes]:
    """Return queue names as a packet has them, without padding.

    They are cached because `inspect_packet` takes a millisecond, and there are few names.
    """
    message = user_message(
        source=NULL_GUID, destination_manager=NULL_GUID, destination=0, message_id=0, sent_time_s=0, body=b""
    )
    user = message.user
    user.destination_type, user.admin_type, user.response_type = types
    user.destination_queue, user.admin_queue, user.response_queue = destination, admin, response
    fields = inspect_packet(encode_packet(message)).fields
    found = [_raw(fields, f"user.{name}_queue") for name in ("destination", "admin", "response")]
    return found[0], found[1], found[2]


def _list_of(message: UserMessage) -> bytes:
    """Return the FormatNameList of a message's destinations, including the padding between its elements."""
    if message.multi_queue_format is None:
        return b""
    base = replace(message.base)
    base.session_header = False
    fields = inspect_packet(encode_packet(replace(message, base=base, session=None))).fields
    return _raw(fields, "multi_queue_format.destination.format_name_list")


def _raw(fields: list[SeenField], name: str) -> bytes:
    """Return the bytes of a field, including all fields inside it."""
    return b"".join(each.raw for each in fields if each.name == name or each.name.startswith(f"{name}."))


def _numbers(message: UserMessage) -> bytes:
    """Return the bits and numbers of 2.5.2 and 2.5.3, each in as many bytes as the specification gives."""
    user, properties = message.user, message.properties
    return _NUMBERS(
        user.delivery_mode,
        message.base.priority,
        user.journal_positive << 1 | user.journal_negative,
        properties.flags & 0x0F,
        properties.message_class,
        properties.body_type,
    )


_NUMBERS: Final[Callable[..., bytes]] = struct.Struct("<BBBBHI").pack
_NUMBER: Final[Callable[..., bytes]] = struct.Struct("<I").pack
