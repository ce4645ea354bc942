"""Keys in the CryptoAPI's form: a public key, and a session key encrypted with a public key.

[MS-MQQB] 2.4. The first eight bytes are the CryptoAPI's BLOBHEADER. In a public key, an RSAPUBKEY of twelve bytes
follows. All numbers are little-endian, even the large ones, whereas RFC 8017 has the modulus and the ciphertext in the
opposite byte order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from construct import Const, GreedyBytes, Int8ul, Int16ul, Int32ul, Rebuild, len_, this

from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import Octets
from mqproto.wire.schema.record import Record

RSA_SIGN: Final = 0x2400
RSA_KEY_EXCHANGE: Final = 0xA400
"""The two purposes of an RSA key pair: CALG_RSA_SIGN and CALG_RSA_KEYX of the CryptoAPI."""
RC2: Final = 0x6602
AES_128: Final = 0x660E
AES_192: Final = 0x660F
AES_256: Final = 0x6610
RC4: Final = 0x6801
CIPHER_NAMES: Final = {RC2: "RC2", AES_128: "AES-128", AES_192: "AES-192", AES_256: "AES-256", RC4: "RC4"}
"""The names of the ciphers, by their algorithm identifiers."""

MINIMUM_BITS: Final = 512
"""The length, in bits, of the base provider's key, which is the shortest in 3.1.7.1.5."""
MAXIMUM_BITS: Final = 16_384
"""The length, in bits, of the longest modulus that a Windows provider takes.

The specification's only limit is the size of a packet.
"""

SIMPLE: Final = 1
PUBLIC_KEY: Final = 6
PRIVATE_KEY: Final = 7
_VERSION: Final = 2
_MAGIC: Final = int.from_bytes(b"RSA1", "little")
_PRIVATE_MAGIC: Final = int.from_bytes(b"RSA2", "little")


@dataclass(slots=True)
class PublicKeyBlob:
    """The public half of a key pair.  [MS-MQQB] 2.4.1, [MS-MQMQ] 2.2.20.6

    modulus: its least significant byte comes first. mqproto/security checks whether the modulus is valid.
    """

    reserved: int = 0
    key_algorithm: int = RSA_KEY_EXCHANGE
    pub_exp: int = 65_537
    modulus: bytes = b""


def _head(kind: int) -> tuple[Any, ...]:
    """Return the fields of the BLOBHEADER, up to the algorithm."""
    return "blob_type" / Const(kind, Int8ul), "blob_version" / Const(_VERSION, Int8ul), "reserved" / Int16ul


def _public_part(kind: int, magic: int, multiple: int) -> tuple[Any, ...]:
    """Return the head of a key pair, its RSAPUBKEY, and its modulus.

    The length of the modulus, in bits, is a multiple of `multiple`: 8 for a public key, 16 for a private key.
    """
    return (
        *_head(kind),
        "key_algorithm" / Int32ul,
        Must(
            "key_algorithm",
            (this.key_algorithm == RSA_KEY_EXCHANGE) | (this.key_algorithm == RSA_SIGN),
            "0xa400, or 0x2400 for signatures",
        ),
        "magic" / Const(magic, Int32ul),
        "bit_len" / Rebuild(Int32ul, len_(this.modulus) * 8),
        "pub_exp" / Int32ul,
        Must("bit_len", (this.bit_len & multiple - 1) == 0, f"a multiple of {multiple}"),
        Must("bit_len", this.bit_len >= MINIMUM_BITS, f"at least {MINIMUM_BITS}"),
        Must("bit_len", this.bit_len <= MAXIMUM_BITS, f"at most {MAXIMUM_BITS}"),
        "modulus" / Octets(this.bit_len >> 3),
    )


public_key_blob = Record(
    PublicKeyBlob,
    Layout("[MS-MQQB] 2.4.1", *_public_part(PUBLIC_KEY, _MAGIC, 8)),
)


@dataclass(slots=True)
class SimpleBlob:
    """A session key, encrypted for the owner of a private key.  [MS-MQQB] 2.4.2

    encrypted_key: as long as the private key's modulus. The specification says 256 bytes, which is right for 2,048
        bits; the keys of 3.1.7.1.5 have 512 and 1,024.
    """

    reserved: int = 0
    session_key_algorithm: int = AES_256
    encrypted_key: bytes = b""


_algorithm, _size = this.session_key_algorithm, len_(this.encrypted_key)

simple_blob = Record(
    SimpleBlob,
    Layout(
        "[MS-MQQB] 2.4.2",
        *_head(SIMPLE),
        "session_key_algorithm" / Int32ul,
        Must(
            "session_key_algorithm",
            ((_algorithm >= AES_128) & (_algorithm <= AES_256)) | (_algorithm == RC2) | (_algorithm == RC4),
            "0x660e, 0x660f, 0x6610, 0x6602 or 0x6801",
        ),
        "key_algorithm" / Const(RSA_KEY_EXCHANGE, Int32ul),
        "encrypted_key" / GreedyBytes,
        Must("encrypted_key", _size >= MINIMUM_BITS // 8, f"at least {MINIMUM_BITS // 8} bytes", value=_size),
        Must("encrypted_key", _size <= MAXIMUM_BITS // 8, f"at most {MAXIMUM_BITS // 8} bytes", value=_size),
    ),
)
KeyBlob = PublicKeyBlob | SimpleBlob


@dataclass(slots=True)
class PrivateKeyBlob:
    """A key pair, unencrypted, in the form in which Windows programs export it. Its repr shows no secret.

    It is never sent, and is never shown to analysts. The names are from RFC 8017 A.1.2.
    """

    reserved: int = 0
    key_algorithm: int = RSA_KEY_EXCHANGE
    pub_exp: int = 65_537
    modulus: bytes = b""
    prime1: bytes = field(default=b"", repr=False)
    prime2: bytes = field(default=b"", repr=False)
    exponent1: bytes = field(default=b"", repr=False)
    exponent2: bytes = field(default=b"", repr=False)
    coefficient: bytes = field(default=b"", repr=False)
    private_exponent: bytes = field(default=b"", repr=False)


def begins_private_key(data: bytes) -> bool:
    """Return whether bytes begin like a PRIVATEKEYBLOB, which must never be shown."""
    magic = data[8:12]
    return data[:2] == bytes((PRIVATE_KEY, _VERSION)) and magic == _PRIVATE_MAGIC.to_bytes(4, "little")


_half = this.bit_len >> 4

private_key_blob = Record(
    PrivateKeyBlob,
    Layout(
        "CryptoAPI, PRIVATEKEYBLOB",
        *_public_part(PRIVATE_KEY, _PRIVATE_MAGIC, 16),
        "prime1" / Octets(_half),
        "prime2" / Octets(_half),
        "exponent1" / Octets(_half),
        "exponent2" / Octets(_half),
        "coefficient" / Octets(_half),
        "private_exponent" / Octets(this.bit_len >> 3),
    ),
)


def begins_key_blob(data: bytes) -> bool:
    """Return whether bytes begin with the type and version of a public or simple blob.

    No packet begins like that, nor does any known Ping.
    """
    return len(data) > 1 and data[0] in (SIMPLE, PUBLIC_KEY) and data[1] == _VERSION
