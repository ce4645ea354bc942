"""Key blobs, session keys, bodies and signatures as bytes.  [MS-MQQB] 2.4, 3.1.7.1.5, [MS-MQMQ] 2.2.19.3

RSA is that of RFC 8017 7.2 and 8.2, computed on integers, so it works with keys of any length, and with any switch. It
is slow, and its timing reveals its keys; this is harmless only in a test. The ciphers, MD2 and MD4 are those of
pycryptodome.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from typing import Any, Final

from Crypto.Cipher import AES, ARC2, ARC4
from Crypto.Hash import MD2 as MD2_HASH, MD4 as MD4_HASH
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, RSAPublicNumbers

from .packets import (
    ADVANCED_PRIVACY,
    AES_128,
    AES_192,
    AES_256,
    BASE_PRIVACY,
    ENHANCED_PRIVACY,
    MD2,
    MD4,
    MD5,
    RC2,
    RC4,
    SHA_1,
    SHA_256,
    SHA_512,
)
from .switches import Switches

Random = Callable[[int], bytes]
KEY_EXCHANGE, SIGNATURES = 0xA400, 0x2400
PUBLIC_BLOB: Final = struct.Struct("<BBHI4sII")
SIMPLE_BLOB: Final = struct.Struct("<BBHII")
LONGEST_BLOCK: Final = 256
"""The maximum length of encryptedKey, as stated in [MS-MQQB] 2.4.2."""
PROVIDERS: Final = {
    BASE_PRIVACY: (1, "Microsoft Base Cryptographic Provider v1.0"),
    ENHANCED_PRIVACY: (1, "Microsoft Enhanced Cryptographic Provider v1.0"),
    ADVANCED_PRIVACY: (24, "Microsoft Enhanced RSA and AES Cryptographic Provider"),
}
"""The type and the name of each provider, keyed by PrivacyLevel.  [MS-MQQB] 3.1.5.8.3"""
KEY_BITS: Final = {
    (BASE_PRIVACY, RC2): 40,
    (BASE_PRIVACY, RC4): 40,
    (ENHANCED_PRIVACY, RC2): 128,
    (ENHANCED_PRIVACY, RC4): 128,
    (ADVANCED_PRIVACY, AES_128): 128,
    (ADVANCED_PRIVACY, AES_192): 192,
    (ADVANCED_PRIVACY, AES_256): 256,
}
"""The length of keys, and UseSymmKeyLength, keyed by provider and cipher.  [MS-MQMQ] 2.2.19.3, [MS-MQQB] 3.1.7.1.5"""
HASHES: Final[dict[int, Callable[[bytes], bytes]]] = {
    MD5: lambda data: hashlib.md5(data).digest(),
    SHA_1: lambda data: hashlib.sha1(data).digest(),
    SHA_256: lambda data: hashlib.sha256(data).digest(),
    SHA_512: lambda data: hashlib.sha512(data).digest(),
    MD2: lambda data: MD2_HASH.new(data).digest(),
    MD4: lambda data: MD4_HASH.new(data).digest(),
}
DIGEST_INFO: Final = {
    MD2: "3020300c06082a864886f70d020205000410",
    MD4: "3020300c06082a864886f70d020405000410",
    MD5: "3020300c06082a864886f70d020505000410",
    SHA_1: "3021300906052b0e03021a05000414",
    SHA_256: "3031300d060960864801650304020105000420",
    SHA_512: "3051300d060960864801650304020305000440",
}
"""For each hash function, the prefix that identifies it. The prefix is put before the hash, and both are encrypted
together.  RFC 8017 9.2, note 1
"""


class UndecipherableError(Exception):
    """The bytes are not what they should be; the error's text says what is wrong."""


# -- keys -------------------------------------------------------------------------------------------------------------


def pack_public_key(key: RSAPublicKey, algorithm: int = KEY_EXCHANGE) -> bytes:
    """Return a PUBLICKEYBLOB.  [MS-MQQB] 2.4.1"""
    numbers, size = key.public_numbers(), key.key_size // 8
    head = PUBLIC_BLOB.pack(6, 2, 0, algorithm, b"RSA1", 8 * size, numbers.e)
    return head + numbers.n.to_bytes(size, "little")


def read_public_key(blob: bytes) -> RSAPublicKey:
    kind, version, _, _, magic, bits, exponent = PUBLIC_BLOB.unpack_from(blob)
    modulus = blob[PUBLIC_BLOB.size :]
    if (kind, version, magic, bits) != (6, 2, b"RSA1", 8 * len(modulus)):
        raise UndecipherableError("no PUBLICKEYBLOB")
    return RSAPublicNumbers(exponent, int.from_bytes(modulus, "little")).public_key()


def pack_session_key(
    key: bytes, algorithm: int, receiver: RSAPublicKey, switches: Switches, random: Random = os.urandom
) -> bytes:
    """Return a SIMPLEBLOB.  [MS-MQQB] 2.4.2"""
    size = receiver.key_size // 8
    if switches.key_in_block_reversed:
        key = key[::-1]
    fill = b""
    while len(fill) < size - 3 - len(key):
        fill += random(1).strip(b"\0")
    numbers = receiver.public_numbers()
    block = pow(int.from_bytes(b"\0\2" + fill + b"\0" + key), numbers.e, numbers.n).to_bytes(size, "little")
    if switches.simple_blob_256:
        block = block.ljust(LONGEST_BLOCK, b"\0")
    return SIMPLE_BLOB.pack(1, 2, 0, algorithm, KEY_EXCHANGE) + block


def read_session_key(
    blob: bytes, level: int, algorithm: int, own: RSAPrivateKey, switches: Switches, random: Random
) -> bytes:
    """Return the key in a SIMPLEBLOB; if its padding or its length is wrong, return a random key.

    With `bad_key_told`, raise UndecipherableError instead of returning a random key.
    """
    if len(blob) < SIMPLE_BLOB.size:
        raise UndecipherableError("EncryptionKey is not a SIMPLEBLOB")
    head, block, size = blob[: SIMPLE_BLOB.size], blob[SIMPLE_BLOB.size :], own.key_size // 8
    if head != SIMPLE_BLOB.pack(1, 2, 0, algorithm, KEY_EXCHANGE):
        raise UndecipherableError("EncryptionKey is not a SIMPLEBLOB of this algorithm")
    if len(block) != (LONGEST_BLOCK if switches.simple_blob_256 else size):
        raise UndecipherableError(f"encryptedKey has {len(block)} bytes")
    numbers = own.private_numbers()
    number = int.from_bytes(block[:size], "little")
    plain = pow(number, numbers.d, numbers.public_numbers.n).to_bytes(size)
    fill, _, key = plain[2:].partition(b"\0")
    wanted = KEY_BITS[level, algorithm] // 8
    if plain[:2] != b"\0\2" or len(fill) < 8 or len(key) != wanted:
        if switches.bad_key_told:
            raise UndecipherableError("encryptedKey is encrypted in a wrong way")
        return random(wanted)
    return key[::-1] if switches.key_in_block_reversed else key


# -- bodies -----------------------------------------------------------------------------------------------------------


def cipher(key: bytes, algorithm: int, switches: Switches) -> Any:
    """Return a cipher for one body.  [MS-MQQB] 3.1.5.8.3

    With `rc4_goes_on`, the same RC4 cipher is used for several bodies in turn.
    """
    bits = 8 * len(key)
    if bits == 40 and switches.salted_40_bit_keys:
        key += bytes(11)
    if algorithm == RC4:
        return ARC4.new(key)
    if algorithm == RC2:
        bits = 40 if switches.rc2_40_of_128 else bits
        if switches.rc2_ecb:
            return ARC2.new(key, ARC2.MODE_ECB, effective_keylen=bits)
        return ARC2.new(key, ARC2.MODE_CBC, iv=bytes(8), effective_keylen=bits)
    return AES.new(key, AES.MODE_CBC, iv=bytes(16))


def padded(body: bytes, algorithm: int) -> bytes:
    """Return a body with the padding of PKCS #5, unless the cipher is RC4.  [MS-MQMQ] 2.2.19.3"""
    if algorithm == RC4:
        return body
    block = 8 if algorithm == RC2 else 16
    count = block - len(body) % block
    return body + bytes([count]) * count


def decrypted(it: Any, body: bytes, algorithm: int) -> bytes:
    if algorithm == RC4:
        return bytes(it.decrypt(body))
    block = 8 if algorithm == RC2 else 16
    if not body or len(body) % block:
        raise UndecipherableError(f"a body of {len(body)} bytes")
    plain = bytes(it.decrypt(body))
    count = plain[-1]
    if not 1 <= count <= block or plain[-count:] != bytes([count]) * count:
        raise UndecipherableError("the padding is wrong")
    return plain[:-count]


# -- signatures -------------------------------------------------------------------------------------------------------


def signature(key: RSAPrivateKey, algorithm: int, data: bytes, switches: Switches) -> bytes:
    """Return the hash, encrypted with the private key.  [MS-MQQB] 3.1.7.1.4"""
    size, numbers = key.key_size // 8, key.private_numbers()
    number = int.from_bytes(_encoded(algorithm, data, size, switches))
    order = "big" if switches.signature_big_endian else "little"
    return pow(number, numbers.d, numbers.public_numbers.n).to_bytes(size, order)  # type: ignore[arg-type]


def is_signature(key: RSAPublicKey, algorithm: int, data: bytes, it: bytes, switches: Switches) -> bool:
    """Return whether a signature is valid.  [MS-MQQB] 3.1.5.8.3

    A signature with MD2 or MD4 is valid only with `md2_and_md4_taken`.
    """
    size, numbers = key.key_size // 8, key.public_numbers()
    if algorithm not in HASHES or (algorithm in (MD2, MD4) and not switches.md2_and_md4_taken):
        return False
    number = int.from_bytes(it, "big" if switches.signature_big_endian else "little")
    if len(it) != size or number >= numbers.n:
        return False
    return pow(number, numbers.e, numbers.n).to_bytes(size) == _encoded(algorithm, data, size, switches)


def _encoded(algorithm: int, data: bytes, size: int, switches: Switches) -> bytes:
    """Return the hash of some data, encoded with EMSA-PKCS1-v1_5."""
    named = b"" if switches.signature_without_oid else bytes.fromhex(DIGEST_INFO[algorithm])
    told = named + HASHES[algorithm](data)
    return b"\0\1" + b"\xff" * (size - 3 - len(told)) + b"\0" + told
