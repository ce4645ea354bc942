"""Puts session keys into SIMPLEBLOBs, and takes them out.  [MS-MQQB] 2.4.2, 3.1.7.1.5, 3.1.5.8.3

The scheme is RSAES-PKCS1-v1_5, which is safe only if nobody can find out whether given bytes are correctly encrypted: a
million answers reveal a key (Bleichenbacher, 1998). So this module never reveals that. If decryption does not yield a
key of the right length, it returns one derived from the bytes and our private key, much as TLS 1.2 does (RFC 5246
7.4.7.1). Then the body's padding, or a signature, is found to be wrong, as with any other wrong key.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from mqproto.security.algorithms import Provider, SessionKey
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.refusals import bad_encryption
from mqproto.wire import SimpleBlob


def seal_session_key(key: SessionKey, receiver: PublicKey) -> SimpleBlob:
    """Return the key encrypted for the receiver."""
    return SimpleBlob(session_key_algorithm=key.algorithm, encrypted_key=receiver.encrypted(key.octets)[::-1])


def open_session_key(blob: SimpleBlob, own: KeyPair, provider: Provider) -> SessionKey:
    """Return the key that a sender sealed; if it was sealed incorrectly, a key that nobody else knows.

    Raises:
        ProtectionError: the blob's algorithm or length is wrong, which need not be secret.
    """
    return open_session_keys(blob, [own], provider)[0]


def open_session_keys(blob: SimpleBlob, own: Sequence[KeyPair], provider: Provider) -> list[SessionKey]:
    """Open a session key that may have been sealed for any of our key pairs, old or new.

    A wrong pair sometimes yields a key of the right length, so several keys may be returned. Only decrypting the body
    shows which one is right.

    Args:
        own: at least one key pair, the newest first.
    """
    size = provider.key_bytes(blob.session_key_algorithm)
    found = session_keys_in(blob, own, provider)
    if found:
        return [key for _, key in found]
    meant = next(pair for pair in own if pair.bits == len(blob.encrypted_key) * 8)
    return [SessionKey(blob.session_key_algorithm, meant.substitute(blob.encrypted_key[::-1])[:size])]


def session_keys_in(
    blob: SimpleBlob, own: Sequence[KeyPair], provider: Provider
) -> list[tuple[KeyPair, SessionKey]]:
    """Return the keys of the right length that a blob yields, each with our key pair that opened it.

    A sender must never learn whether there was any such key. An analyst may know.

    Raises:
        ProtectionError: as for `open_session_key`.
    """
    size = provider.key_bytes(blob.session_key_algorithm)
    bits = len(blob.encrypted_key) * 8
    meant = [pair for pair in own if pair.bits == bits]
    if not meant:
        have = ", ".join(str(pair.bits) for pair in own)
        raise bad_encryption(f"the key is encrypted for {bits} bits, and the {provider.word} key has {have}")
    encrypted = blob.encrypted_key[::-1]
    opened = ((pair, _decrypted(pair, encrypted)) for pair in meant)
    return [
        (pair, SessionKey(blob.session_key_algorithm, octets))
        for pair, octets in opened
        if len(octets) == size
    ]


def _decrypted(own: KeyPair, encrypted: bytes) -> bytes:
    """Return the decrypted bytes.

    If they were badly encrypted, return arbitrary bytes, or none if OpenSSL before 3.2 refuses them.
    """
    try:
        return own.rsa.decrypt(encrypted, PKCS1v15())
    except ValueError:
        return b""
