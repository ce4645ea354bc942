"""The keys of a world's nodes: each node's own keys, and the public keys of other nodes that it knows.

The guard is the same as in real nodes, with all its caches. Only its random data comes from dice instead of the system:
keys, session keys, and their padding. With dice, one scenario always makes the same capture. The padding is made here,
because pyca pads only with the system's random data.

Keys of 512 bits are quick, and anyone can break them. Each key pair that replaces another is slightly longer. If two
pairs had the same length, the wrong one would sometimes seem to fit a body.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from math import gcd, prod
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.security import Certificate, KeyGuard, KeyPair, Keys, PublicKey, self_signed
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.world.scenarios.scenario import START_UTC_S, Scenario, guid_of
from mqproto.simulator.world.scenarios.traffic import SIGNER
from mqproto.turn.guard import Guard, Signer
from mqproto.wire.layouts.security import QUEUE_MANAGER

BITS: Final = 512
LONGER_BITS: Final = 16
"""The number of bits by which each key pair for key exchange is longer than the previous one."""
EXPONENT: Final = 65_537
SMALL_PRIMES: Final = prod((3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47))
PROVIDER: Final = "aes"
YEARS_S: Final = 5 * 365 * 86_400
CERTIFIED_DAYS: Final = 10 * 365
PUBLISHED: Final = b"A test key of simulated worlds: 512 bits, published on purpose. It protects nothing.\n"
"""The comment above a private key in its file."""


class Keyring:
    """All keys of one world, and a guard for each node.

    Args:
        made: a function that is called with each encrypted session key, the node it is meant for, and the number of
            that node's key pair.
    """

    def __init__(self, scenario: Scenario, made: Callable[[bytes, str, int], None]) -> None:
        self._made = made
        self._generations = dict.fromkeys(scenario.nodes, 0)
        """For each node, the index of the key pair that it uses. The first key pair has the index 0."""
        self._handed_out = dict.fromkeys(scenario.nodes, 0)
        """For each node, the index of its public key that the others know. The first key has the index 0."""
        self._withdrawn: set[str] = set()
        """The nodes that know nobody else's keys."""
        self._users = {bytes(guid_of(name)): [_certificate(name).der] for name in scenario.nodes}
        self._dice = {name: chance(scenario.seed, "session keys", name) for name in scenario.nodes}

    def guard_of(self, name: str, settings: Settings) -> KeyGuard:
        """Return the guard of a starting node."""
        return KeyGuard(self.keys_of(name), settings, self._dice[name].randbytes)

    def renew(self, guard: Guard, name: str) -> None:
        """Tell a running node its current keys."""
        assert isinstance(guard, KeyGuard), "each node of this world has one"
        guard.renew(self.keys_of(name))

    def keys_of(self, name: str) -> Keys:
        """Return the keys that a node owns, and those of others that it knows."""
        own = [
            _key(name, "exchange", BITS + LONGER_BITS * number)
            for number in range(self._generations[name] + 1)
        ]
        signer = Signer(_certificate(name).der, bytes(guid_of(name)), QUEUE_MANAGER)
        return Keys(
            own={PROVIDER: own[::-1]},
            signers={SIGNER: (signer, _key(name, "signing", BITS))},
            managers={guid_of(other): {PROVIDER: self._public(other, name)} for other in self.known_by(name)},
            users=self._users,
        )

    def known_by(self, name: str) -> dict[str, int]:
        """Return which public keys a node knows, as key numbers keyed by the keys' owners.

        The first key of an owner has the number 0.
        """
        if name in self._withdrawn:
            return {}
        return {other: number for other, number in self._handed_out.items() if other != name}

    def _public(self, owner: str, user: str) -> PublicKey:
        number = self._handed_out[owner]
        pair = _key(owner, "exchange", BITS + LONGER_BITS * number)

        def made(encrypted: bytes) -> None:
            self._made(encrypted, owner, number)

        return _DicedKey(pair.public, self._dice[user], made)

    def replace(self, name: str) -> None:
        """Give a node a new key pair. It keeps its old ones, because messages on their way may need them."""
        self._generations[name] += 1

    def hand_out(self, name: str) -> None:
        """Tell the other nodes a node's newest key."""
        self._handed_out[name] = self._generations[name]

    def withdraw(self, name: str, *, withdrawn: bool) -> None:
        """Take the public keys of all other nodes away from a node, or give them back."""
        (self._withdrawn.add if withdrawn else self._withdrawn.discard)(name)

    def mend(self) -> None:
        """Give all nodes the newest keys of all others."""
        self._withdrawn.clear()
        self._handed_out.update(self._generations)


def key_files(scenario: Scenario) -> dict[str, bytes]:
    """Return the key files that open and verify a scenario's messages if keys are not replaced, keyed by file name.

    They are the key pairs of the destinations, and the certificates of the signers. They are derived from the names of
    the nodes, so they are not secret.
    """
    files = {}
    for burst in scenario.bursts:
        for name in burst.targets if burst.encrypted else ():
            files[f"{name}.pem"] = PUBLISHED + _key(name, "exchange", BITS).pem()
        if burst.signed:
            files[f"{burst.source}.cer"] = _certificate(burst.source).pem()
    return files


class _DicedKey(PublicKey):
    """A public key that takes its padding from dice."""

    def __init__(self, key: PublicKey, dice: random.Random, made: Callable[[bytes], None]) -> None:
        super().__init__(key.rsa)
        self._dice = dice
        self._made = made

    def encrypted(self, octets: bytes) -> bytes:
        size, numbers = self.bits // 8, self.rsa.public_numbers()
        padding = bytes(self._dice.randrange(1, 256) for _ in range(size - 3 - len(octets)))
        block = int.from_bytes(b"\0\2" + padding + b"\0" + octets, "big")
        encrypted = pow(block, numbers.e, numbers.n).to_bytes(size, "big")
        self._made(encrypted)
        return encrypted


@cache
def _certificate(name: str) -> Certificate:
    return self_signed(_key(name, "signing", BITS), name, START_UTC_S - YEARS_S, CERTIFIED_DAYS, number=1)


@cache
def _key(name: str, use: str, bits: int) -> KeyPair:
    """Return a node's key pair. It is the same in all worlds."""
    dice = chance(0, "key", name, use, str(bits))
    return KeyPair.from_primes(_prime(dice, bits // 2), _prime(dice, bits // 2))


def _prime(dice: random.Random, bits: int) -> int:
    """Return a prime of this length, with its two highest bits set. Fermat's test is enough, because pyca checks the
    key again.
    """
    while True:
        number = dice.getrandbits(bits) | 3 << bits - 2 | 1
        if gcd(number, SMALL_PRIMES) == 1 and number % EXPONENT != 1 and pow(2, number - 1, number) == 1:
            return number
