"""Session keys into SIMPLEBLOBs, and out of them.  [MS-MQQB] 2.4.2, 3.1.7.1.5, 3.1.5.8.3

The scheme is RSAES-PKCS1-v1_5, which is safe only while nobody can ask which bytes are well encrypted: with a
million answers a stranger reads a key (Bleichenbacher, 1998). So no answer is given here. What does not come out as
a key of the right length is replaced by one that follows from the bytes and our private key, much as TLS 1.2 does
it (RFC 5246 7.4.7.1). Then the body's padding, or a signature, is wrong, as with any other wrong key.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from mqproto.security.algorithms import Provider, SessionKey
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.refusals import bad_encryption
from mqproto.wire import SimpleBlob


def seal_session_key(key: SessionKey, receiver: PublicKey) -> SimpleBlob:
    """The key, so that only the receiver can read it."""
    return SimpleBlob(session_key_algorithm=key.algorithm, encrypted_key=receiver.encrypted(key.octets)[::-1])


def open_session_key(blob: SimpleBlob, own: KeyPair, provider: Provider) -> SessionKey:
    """The key that a sender has sealed; if it is sealed in a wrong way, one that nobody knows.

    Raises:
        ProtectionError: by what everybody can see, it is not for us: another algorithm, another length.
    """
    return open_session_keys(blob, [own], provider)[0]


def open_session_keys(blob: SimpleBlob, own: Sequence[KeyPair], provider: Provider) -> list[SessionKey]:
    """The same where several of our key pairs may be meant, as one has taken the place of another.

    A wrong one gives a key of the right length now and then, so there may be several; the body tells.

    Args:
        own: one at least, the newest first.
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
    """What comes out of a blob as a key of the right length, and with which of our key pairs.

    Whoever tells a sender whether there was any, gives the answer that is not to be given: an analyst may.

    Raises:
        ProtectionError: as `open_session_key`.
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
    """What comes out: of what is encrypted in a wrong way anything, or nothing where OpenSSL before 3.2 refuses it."""
    try:
        return own.rsa.decrypt(encrypted, PKCS1v15())
    except ValueError:
        return b""
