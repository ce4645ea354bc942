"""Encrypts and decrypts bodies.  [MS-MQQB] 3.1.7.1.5, 3.1.5.8.3, [MS-MQMQ] 2.2.19.3

AES and RC2 run in CBC mode with an initial value of zeros and PKCS #5 padding; the specification gives the mode only
for AES. RC2 has as many effective bits as its key has. RC4 starts afresh with each body, because one key is used for
many bodies, any of which may be lost. A cipher does not reveal that a body was changed; only a signature does.
"""

from __future__ import annotations

from typing import Any, Final

from Crypto.Cipher import ARC2
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.decrepit.ciphers import algorithms as decrepit
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from mqproto.security.algorithms import ALGORITHMS, SessionKey
from mqproto.security.refusals import bad_encryption, unsupported
from mqproto.wire.layouts.keyblobs import RC2, RC4

_PYCA_RC2_BYTES: Final = 16
"""The length, in bytes, of the only keys that pyca's RC2 takes; it uses all of their bits."""


def encrypt(key: SessionKey, body: bytes) -> bytes:
    """Return the encrypted body. With AES and RC2, it is 1 to 16 bytes longer than the body.

    Raises:
        ProtectionError: the installed `cryptography` was built without this cipher.
    """
    block = ALGORITHMS[key.algorithm].block_bytes
    if block > 1:
        padder = PKCS7(8 * block).padder()
        body = padder.update(body) + padder.finalize()
    return _run(key, body, encrypts=True)


def decrypt(key: SessionKey, body: bytes) -> bytes:
    """Return the decrypted body.

    Raises:
        ProtectionError: the body does not consist of whole blocks, or its padding is wrong.
    """
    block = ALGORITHMS[key.algorithm].block_bytes
    if block == 1:
        return _run(key, body, encrypts=False)
    if not body or len(body) % block:
        raise bad_encryption(f"the body has {len(body)} bytes, which are not blocks of {block}")
    padder = PKCS7(8 * block).unpadder()
    try:
        return padder.update(_run(key, body, encrypts=False)) + padder.finalize()
    except ValueError:
        raise bad_encryption("the body's padding is wrong") from None


def _run(key: SessionKey, data: bytes, *, encrypts: bool) -> bytes:
    if key.algorithm == RC2 and len(key.octets) != _PYCA_RC2_BYTES:
        bits = 8 * len(key.octets)
        short = ARC2.new(key.octets, ARC2.MODE_CBC, iv=bytes(ARC2.block_size), effective_keylen=bits)
        return short.encrypt(data) if encrypts else short.decrypt(data)
    try:
        cipher = _cipher(key)
        context = cipher.encryptor() if encrypts else cipher.decryptor()
    except UnsupportedAlgorithm:
        name = ALGORITHMS[key.algorithm].name
        raise unsupported(f"the cryptography that is installed has no {name}") from None
    return bytes(context.update(data) + context.finalize())


def _cipher(key: SessionKey) -> Cipher[Any]:
    if key.algorithm == RC4:
        return Cipher(decrepit.ARC4(key.octets), None)
    if key.algorithm == RC2:
        return Cipher(decrepit.RC2(key.octets), CBC(bytes(8)))
    return Cipher(AES(key.octets), CBC(bytes(16)))
