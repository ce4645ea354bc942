"""Key pairs for tests, each made once, as one of 2,048 bits takes a second on a busy machine; ciphers; secrets."""

from __future__ import annotations

import base64
from functools import cache
from typing import Final

from mqproto.security import PROVIDERS, HeldKeyPair, KeyAwayError, KeyPair, new_key_pair

CIPHERS: Final = [(provider, number) for provider in PROVIDERS for number in provider.algorithms]


@cache
def own_key(bits: int = 1_024) -> KeyPair:
    return new_key_pair(bits)


def secret_forms(pair: KeyPair) -> set[bytes]:
    """The private numbers of a key as they may leak: raw, hex, decimal, base64 at any offset, and its PEM."""
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


class SoftToken:
    """A holder that has the key itself, and may be out of reach; `calls` is how often it was asked in vain or not."""

    def __init__(self, pair: KeyPair) -> None:
        self._numbers = pair.rsa.private_numbers()
        self._pair = pair
        self.is_away = False
        self.calls = 0

    def decrypted(self, block: bytes) -> bytes | None:
        self._ask()
        size = self._pair.bits // 8
        if len(block) != size:
            return None
        opened = self._raw(block, size)
        head, _, octets = opened[2:].partition(b"\0")
        return octets if opened[:2] == b"\0\2" and len(head) >= 8 else None

    def signed(self, digest_info: bytes) -> bytes:
        self._ask()
        size = self._pair.bits // 8
        return self._raw(b"\0\1" + b"\0".rjust(size - 2 - len(digest_info), b"\xff") + digest_info, size)

    def _ask(self) -> None:
        self.calls += 1
        if self.is_away:
            raise KeyAwayError("the token is away: put it back")

    def _raw(self, block: bytes, size: int) -> bytes:
        numbers = self._numbers
        return pow(int.from_bytes(block, "big"), numbers.d, numbers.public_numbers.n).to_bytes(size, "big")


def held(pair: KeyPair) -> tuple[HeldKeyPair, SoftToken]:
    """The same key pair in a token."""
    token = SoftToken(pair)
    return HeldKeyPair(pair.public, token, b"seed"), token


class FakeKey:
    """A private key with which everything decrypts to the same."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def decrypt(self, encrypted: bytes, padding: object) -> bytes:
        return self.octets
