"""Keys for peers: each peer has its own keys, and knows the other's public keys and certificate."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from mqproto.security import Certificate, KeyPair, new_key_pair, self_signed
from tests.letter.peer.cryptoapi import KEY_BITS, pack_public_key
from tests.letter.peer.packets import (
    ADVANCED_PRIVACY,
    AES_128,
    AES_192,
    AES_256,
    BASE_PRIVACY,
    ENHANCED_PRIVACY,
    MANAGER,
    RC2,
    RC4,
    Security,
)
from tests.letter.peer.protection import Keys
from tests.security.keys import own_key

CIPHERS: Final = {
    "AES-256": (ADVANCED_PRIVACY, AES_256),
    "AES-192": (ADVANCED_PRIVACY, AES_192),
    "AES-128": (ADVANCED_PRIVACY, AES_128),
    "RC2-128": (ENHANCED_PRIVACY, RC2),
    "RC4-128": (ENHANCED_PRIVACY, RC4),
    "RC2-40": (BASE_PRIVACY, RC2),
    "RC4-40": (BASE_PRIVACY, RC4),
}
assert set(CIPHERS.values()) == set(KEY_BITS)
BORN_S: Final = 1_700_000_000


class Owner(NamedTuple):
    """A queue manager that has its own keys for key exchange and for signatures."""

    exchange: KeyPair
    signing: KeyPair
    certificate: Certificate

    @property
    def rsa(self) -> RSAPrivateKey:
        return self.exchange.rsa


@cache
def owner(number: int) -> Owner:
    """Return an owner; the one with number 0 has the shortest keys for key exchange.

    No owner's signatures end on a 4-byte boundary.
    """
    signing = own_key(1_032 + 8 * number)
    certificate = self_signed(signing, f"manager {number}", BORN_S, 36_500)
    return Owner(own_key(512 + 16 * number), signing, certificate)


@cache
def nobody(instead_of: Owner) -> Owner:
    """Return an owner whose keys for key exchange are as long as the given owner's, but different."""
    return instead_of._replace(exchange=new_key_pair(instead_of.exchange.bits))


def keys_of(own: Owner, guid: UUID, other: Owner, their_guid: UUID) -> Keys:
    """Return the keys of one peer; it uses the same key for all providers."""
    levels = (BASE_PRIVACY, ENHANCED_PRIVACY, ADVANCED_PRIVACY)
    return Keys(
        own=dict.fromkeys(levels, own.rsa),
        others={their_guid: dict.fromkeys(levels, pack_public_key(other.rsa.public_key()))},
        signer=own.signing.rsa,
        certificate=own.certificate.der,
        sender=Security(guid.bytes_le, MANAGER),
        users={their_guid.bytes_le: {other.certificate.der}},
    )
