"""Letter peers with keys: they exchange messages with each other.

They also read data that Wine's CryptoAPI has encrypted and signed for them.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.letter.audit import audit
from tests.letter.peer.cryptoapi import cipher, decrypted, is_signature, read_public_key, read_session_key
from tests.letter.peer.packets import MD4, MD5, SHA_1, SHA_256, SHA_512, SIGNED_10, SIGNED_20, SIGNED_30
from tests.letter.peer.peer import Peer, bodies
from tests.letter.peer.switches import QUESTIONS, Switches
from tests.letter.scenarios import SEALED
from tests.letter.wire import A, B, Wire, pair, private, running
from tests.security.wine.vectors import BODY, vectors

from .keys import CIPHERS, keys_of, owner

LETTER = Switches()
LEVELS = {"base": 1, "enhanced": 3, "aes": 5}
OF_KEYS = [question.name for question in QUESTIONS if question.of_keys]
SIGNATURES = [
    (SIGNED_10, SHA_1),
    (SIGNED_20, SHA_512),
    (SIGNED_20, SHA_256),
    (SIGNED_30, MD5),
]


@pytest.mark.parametrize(
    "said", vectors()["sealed"], ids=lambda said: f"{said['provider']}-{said['algorithm']:x}"
)
def test_what_wine_has_sealed_is_opened(said: dict[str, Any]) -> None:
    own = load_pem_private_key(vectors()["key"].encode(), None)
    assert isinstance(own, RSAPrivateKey)
    blob, number = bytes.fromhex(said["blob"]), said["algorithm"]
    key = read_session_key(blob, LEVELS[said["provider"]], number, own, LETTER, os.urandom)
    assert decrypted(cipher(key, number, LETTER), bytes.fromhex(said["body"]), number) == BODY


@pytest.mark.parametrize("algorithm", [MD5, SHA_1, SHA_256, SHA_512])
def test_what_wine_has_signed_is_verified(algorithm: int) -> None:
    signer = read_public_key(bytes.fromhex(vectors()["signer"]))
    made = bytes.fromhex(vectors()["signed"][str(algorithm)])
    assert is_signature(signer, algorithm, BODY, made, LETTER)
    assert not is_signature(signer, algorithm, BODY + b"!", made, LETTER)


def keyed(switches: Switches) -> tuple[Wire, Peer, Peer]:
    wire = Wire()
    a, b = pair(wire, switches, switches)
    a.protection.keys = keys_of(owner(0), A, owner(1), B)
    b.protection.keys = keys_of(owner(1), B, owner(0), A)
    return wire, a, b


@pytest.mark.parametrize("name", ["none", *OF_KEYS])
async def test_peers_that_read_alike_understand_each_other(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    wire, a, b = keyed(Switches(**({} if name == "none" else {name: True})))
    wishes: list[dict[str, Any]] = [{"seal": each, "sign": (SIGNED_20, SHA_1)} for each in CIPHERS.values()]
    wishes += [{"sign": each} for each in SIGNATURES]
    wishes += [
        {"seal": CIPHERS["RC4-128"]},
        {"seal": CIPHERS["RC4-128"], "destinations": SEALED, "sign": (SIGNED_20, SHA_1)},
    ]
    if name == "md2_and_md4_taken":
        wishes.append({"sign": (SIGNED_20, MD4)})
    sent = [b"the body of %d/%s" % (number, b"x" * 5 * number) for number in range(len(wishes))]
    async with running(a, b):
        for body, wish in zip(sent, wishes, strict=True):
            a.send(private(10), body, transactional=True, label="label", **wish)
        await b.until(lambda: len(b.queues[0].messages) + len(b.refusals) == len(sent))
    assert (b.refusals, bodies(b.queues[0].messages)) == ([], sent)
    assert [it.signed_as for message in b.queues[0].messages if (it := message.security)] == [
        *[SIGNED_30 if name == "sig30_in_security_header" else SIGNED_20] * 7,
        *[SIGNED_30 if name == "sig30_in_security_header" else kind for kind, _ in SIGNATURES],
        *[0, SIGNED_30, SIGNED_20][: len(wishes) - 11],
    ]
    assert not any(body in data for _, data in wire.packets for body in sent[:7]), "it crossed encrypted"
    assert audit(A, b.heard) == []
