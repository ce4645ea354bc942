"""Seals and opens whole messages.  [MS-MQQB] 3.1.7.1.5, 3.1.5.8.3

A message is sealed when it leaves its source, and opened once it has arrived at its destination; nobody in between
looks inside. Only the body, and the fields about its encryption, change.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.security.algorithms import Provider, SessionKey, new_session_key, provider_by_privacy_level
from mqproto.security.caches import AgeingCache, CachedSymmetricKey, ReceiveName
from mqproto.security.ciphers import decrypt, encrypt
from mqproto.security.exchange import open_session_keys, seal_session_key
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.refusals import ProtectionError, bad_encryption, unsupported
from mqproto.wire import SecurityHeader, SimpleBlob, UserMessage, simple_blob
from mqproto.wire.layouts.keyblobs import RC2
from mqproto.wire.layouts.user import PRIVATE_ON_DESTINATION, PUBLIC

SEALED_FOR: Final = (PRIVATE_ON_DESTINATION, PUBLIC)
"""The types of destination for which the queue manager, and so its key, is known."""
ReceiveCache = AgeingCache[ReceiveName, CachedSymmetricKey]


def new_sending_key(
    provider: Provider,
    algorithm: int,
    receiver: PublicKey,
    *,
    reduced: bool = False,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> CachedSymmetricKey:
    """Return a new session key for a receiver.  3.1.7.1.5

    Raises:
        UsageError: the provider has no such algorithm.
    """
    key = new_session_key(provider, algorithm, reduced=reduced, random=random)
    return CachedSymmetricKey(provider, simple_blob.encode(seal_session_key(key, receiver)), key)


def sealed(message: UserMessage, sending: CachedSymmetricKey) -> UserMessage:
    """Return the message with its body encrypted.

    Raises:
        UsageError: the message is addressed by a direct format name, so it cannot be encrypted.
    """
    if message.user.destination_type not in SEALED_FOR:
        raise UsageError("a direct format name cannot be encrypted: send it by a private or public one")
    body = encrypt(sending.key, message.properties.message_body)
    security = replace(
        message.security or SecurityHeader(), encryption_key=sending.encrypted, provider_info=b""
    )
    security.body_encrypted = security.default_provider = security.has_security_data = True
    user = replace(message.user)
    user.has_security = True
    properties = replace(
        message.properties,
        message_body=body,
        allocation_body_size=len(body),
        privacy_level=sending.provider.privacy_level,
        encryption_algorithm=sending.key.algorithm,
    )
    return replace(message, user=user, security=security, properties=properties)


def opened(
    message: UserMessage,
    own: Mapping[str, Sequence[KeyPair]],
    cache: ReceiveCache,
    now_ms: int,
    *,
    reject_reduced: bool = False,
) -> UserMessage:
    """Return the message with its body decrypted and EB cleared. It still contains the encrypted key.

    If `openings` yields several forms, the first one is returned.
    """
    return next(openings(message, own, cache, now_ms, reject_reduced=reject_reduced))


def openings(
    message: UserMessage,
    own: Mapping[str, Sequence[KeyPair]],
    cache: ReceiveCache,
    now_ms: int,
    *,
    reject_reduced: bool = False,
) -> Iterator[UserMessage]:
    """Yield the possible clear forms of a message, at least one.

    There are several if a wrong key fits by chance, as one in 256 wrong key pairs of the same length does. Only a
    signature tells which form is right.

    Args:
        own: our key pairs for key exchange, by the provider's word, the present one first.
        cache: the keys that earlier messages brought.
        reject_reduced: RejectEnhancedRC2Using40BitKeys.

    Raises:
        ProtectionError: the message is refused.
    """
    security, properties = message.security, message.properties
    assert security is not None, "nothing is encrypted without a SecurityHeader"
    provider = provider_by_privacy_level(properties.privacy_level)
    algorithm = provider.algorithm(properties.encryption_algorithm).number
    name = ReceiveName(message.user.source_queue_manager, provider.word, algorithm, security.encryption_key)
    known = cache.find(name)
    keys = [known.key] if known is not None else _keys_in(name, provider, own)
    is_alone = len(keys) == 1
    refusal: ProtectionError | None = None
    found = False
    for key in keys:
        try:
            body = decrypt(key, properties.message_body)
        except ProtectionError as error:
            refusal = error
            continue
        if reject_reduced and algorithm == RC2 and key.is_reduced:
            raise bad_encryption("the key of 128 bits has 40 that are not 0, and those are not taken here")
        if known is None and is_alone:  # One of several may fit by chance.
            cache.add(name, CachedSymmetricKey(provider, security.encryption_key, key), now_ms)
        found = True
        yield in_clear(message, body)
    if not found:
        assert refusal is not None, "there is a key at least"
        try:
            raise refusal
        finally:
            del refusal  # As in guard.py.


def in_clear(message: UserMessage, body: bytes) -> UserMessage:
    """Return the message with this body, marked as not encrypted."""
    assert message.security is not None, "nothing is encrypted without a SecurityHeader"
    plain = replace(message.security)
    plain.body_encrypted = False
    return replace(
        message,
        security=plain,
        properties=replace(message.properties, message_body=body, allocation_body_size=len(body)),
    )


def _keys_in(name: ReceiveName, provider: Provider, own: Mapping[str, Sequence[KeyPair]]) -> list[SessionKey]:
    """Return the possible session keys of a message: one for each of our key pairs that may fit."""
    pairs = own.get(provider.word, ())
    if not pairs:
        raise unsupported(f"there is no key for the {provider.word} provider here: mqproto keys make")
    return open_session_keys(session_blob(name.encrypted, name.algorithm), pairs, provider)


def session_blob(encrypted: bytes, algorithm: int) -> SimpleBlob:
    """Return the session key that a message brought, still encrypted.

    Raises:
        ProtectionError: it brought no key, or a key for another algorithm.
    """
    try:
        blob = simple_blob.decode(encrypted)
    except WireFormatError as error:
        raise bad_encryption(f"EncryptionKey is not a SIMPLEBLOB: {error}") from None
    if blob.reserved:
        raise bad_encryption(f"EncryptionKey.reserved is {blob.reserved:#06x}, must be 0")
    if blob.session_key_algorithm != algorithm:
        raise bad_encryption("EncryptionKey is for another algorithm than EncryptionAlgorithm says")
    return blob
