"""Ciphers, secrets and key pairs for tests; each pair is made only once, because making one of 2,048 bits takes a
second on a busy machine.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Final

from mqproto.security import PROVIDERS, KeyPair, new_key_pair

CIPHERS: Final = [(provider, number) for provider in PROVIDERS for number in provider.algorithms]


@cache
def own_key(bits: int = 1_024) -> KeyPair:
    return new_key_pair(bits)


def secret_forms(pair: KeyPair) -> set[bytes]:
    """Return a key's private numbers in all forms that may leak: raw, hex, decimal, base64 at any offset, PEM."""
    numbers = pair.rsa.private_numbers()
    forms = {line for line in pair.pem().splitlines()[1:-1] if len(line) == 64}
    for number in (numbers.d, numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp):
        octets = number.to_bytes((number.bit_length() + 7) // 8, "big")
        forms |= {
            octets,
            octets[::-1],
            octets.hex().encode(),
            octets[::-1].hex().encode(),
            str(number).encode(),
        }
        forms |= {base64.b64encode(octets[start : start + 24]) for start in range(3)}
    return forms


class FakeKey:
    """A private key with which everything decrypts to the same bytes."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def decrypt(self, encrypted: bytes, padding: object) -> bytes:
        return self.octets
