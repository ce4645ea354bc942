"""Our node and a letter peer over TCP, with every cipher, every kind of signature, and every switch about keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trio

from tests.letter.cell import TO_LETTER, TO_OURS
from tests.letter.node import LETTER, OURS, QUEUES
from tests.letter.peer.packets import SHA_512, SIGNED_20
from tests.letter.peer.protection import Keys
from tests.letter.peer.switches import Switches

from .exchange import BY_PEERS, CLASSES, NOT_SAID, OWNER, PEER, TOO_LONG_S, WISHES, Exchange, Outcomes
from .keys import CIPHERS, keys_of, nobody
from .test_protection import OF_KEYS

SAME: Final = ""
SIGNATURE, ENCRYPTION = "NACK_BAD_SIGNATURE", "NACK_BAD_ENCRYPTION"
UNREADABLE: Final = f"{ENCRYPTION}|altered"
"""A pattern for the outcome of a wrong decryption; even then, the padding looks valid one time in 256."""
UNPROVED: Final = f"{ENCRYPTION}|{SIGNATURE}"
CASES: Final[dict[str, Mapping[str, str]]] = {
    "simple_blob_256": {"AES-256": ENCRYPTION, "RC4-128, signed": ENCRYPTION, "signed": SAME},
    "rc2_ecb": {"RC2-128": UNREADABLE, "RC2-40": UNREADABLE, "RC2-128, signed": UNPROVED, "AES-256": SAME},
    "rc2_40_of_128": {"RC2-128": UNREADABLE, "RC2-128, signed": UNPROVED, "RC2-40": SAME},
    "salted_40_bit_keys": {
        "RC2-40": UNREADABLE,
        "RC4-40": "altered",
        "RC4-40, signed": SIGNATURE,
        "RC4-128": SAME,
    },
    "rc4_goes_on": {
        "to-ours RC4-128/orders": SAME,
        "to-ours RC4-128/notes": "altered",
        "to-ours RC4-128, signed": SIGNATURE,
        "to-letter RC4-128": "whole|altered",
        "to-letter RC4-128, signed": f"whole, signed 3|{SIGNATURE}",
    },
    "key_in_block_reversed": {"AES-256": UNREADABLE, "RC4-128": "altered", "RC4-128, signed": SIGNATURE},
    "bad_key_told": {"RC4-128": SAME},
    "signature_big_endian": {"signed": SIGNATURE, "signed, listed": SIGNATURE, "AES-256": SAME},
    "signature_without_oid": {"signed": SIGNATURE, "signed, listed": SIGNATURE, "AES-256": SAME},
    "md2_and_md4_taken": {"signed, MD2": SAME, "signed, MD4": SAME, "signed": SAME},
    "label_without_nul": {
        "signed": SIGNATURE,
        "signed, listed": SIGNATURE,
        "signed, MSMQ 1.0": SIGNATURE,
        "AES-256": SAME,
    },
    "names_with_padding": {"signed, answered": SIGNATURE, "signed": SAME},
    "list_without_padding": {"signed, listed": SIGNATURE, "signed": SAME},
    "signs_ciphertext": {
        "RC4-128, signed": SIGNATURE,
        "AES-256, signed": SIGNATURE,
        "signed": SAME,
        "AES-256": SAME,
    },
    "sig30_in_security_header": {"to-ours signed": "whole, signed 5", "to-letter signed": SAME},
    "sid_is_verified": {"to-letter named": SIGNATURE, "to-ours named": SAME, "plain": SAME},
    "provider_info_always": {"signed": SAME, "RC2-128, signed": SAME, "AES-256": SAME},
    "other keys": {"AES-256": UNREADABLE, "RC4-128": "altered", "RC4-128, signed": SIGNATURE, "signed": SAME},
    "other keys, bad_key_told": {"to-letter RC4-128": ENCRYPTION, "to-ours RC4-128": "altered"},
    "no keys": {"to-letter AES-256": ENCRYPTION, "to-ours AES-256": SAME, "signed": SAME},
    "other certificates": {"signed": SIGNATURE, "AES-256, signed": SIGNATURE, "AES-256": SAME},
}
"""The outcomes of messages for each switch, and for peers with other keys.

An outcome applies to both directions and both queues unless its key names one of them. It is a pattern, or `SAME` if
the outcome is the same as without the switch. An altered message is never reported as signed.
"""
SIGN: Final = (SIGNED_20, SHA_512)
REFUSED: Final[dict[str, dict[str, tuple[int, int]]]] = {
    SIGNATURE: {"seal": CIPHERS["AES-256"]},
    ENCRYPTION: {"sign": SIGN},
    "NACK_UNSUPPORTED_CRYPTO_PROVIDER": {"seal": CIPHERS["RC4-128"], "sign": SIGN},
    "NACK_ACCESS_DENIED": {"seal": CIPHERS["AES-256"], "sign": SIGN},
}
"""Messages that a strict queue refuses, keyed by the class of the refusal.

The queue accepts only messages that are signed, encrypted with a strong cipher, and from one particular sender.
"""
INSECURE: Final = {"signed": SIGNATURE, "AES-256": ENCRYPTION}


def keys(case: str) -> Keys:
    """Return the keys that the peer has in a case."""
    ours, theirs = OWNER, PEER
    if case.startswith("other keys"):
        ours, theirs = nobody(ours), nobody(theirs)
    plain = keys_of(theirs, LETTER, ours, OURS)
    if case == "no keys":
        return replace(plain, own={})
    if case == "other certificates":
        strange = keys_of(OWNER, LETTER, OWNER, OURS)
        return replace(plain, signer=strange.signer, certificate=strange.certificate, users={})
    return plain


def switches(case: str) -> Switches:
    return Switches(**{name: True for name in OF_KEYS if name in case.split(", ")})


def wishes(expected: Mapping[str, str]) -> set[str]:
    """Return the wishes that a case mentions."""
    return {re.sub("^(to-ours|to-letter) |/.*", "", key) for key in expected}


class Run(NamedTuple):
    """The outcomes of all cases, and the events that our node noted."""

    without: Outcomes
    with_switches: dict[str, Outcomes]
    events: set[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run one node and one peer; the peer reads the text differently in each case."""
    it = Exchange(tmp_path_factory.mktemp("exchange"))

    async def all_cases() -> Run:
        found: dict[str, Outcomes] = {}
        async with it.running():
            it.turn()
            with trio.fail_after(TOO_LONG_S):
                without = await it.exchange({**WISHES, **BY_PEERS})
            for case, expected in CASES.items():
                it.turn(switches(case), keys(case))
                with trio.fail_after(TOO_LONG_S):
                    found[case] = await it.exchange(wishes(expected))
        return Run(without, found, {json.loads(line)["event"] for line in it.log.getvalue().splitlines()})

    return trio.run(all_cases)


@pytest.mark.long
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("way", [TO_OURS, TO_LETTER])
def test_what_one_encrypts_and_signs_the_other_reads_and_believes(run: Run, way: str) -> None:
    expected: Outcomes = {}
    for name, wish in {**WISHES, **(BY_PEERS if way == TO_OURS else {})}.items():
        said = f"whole, signed {wish.kind}" if wish.kind else "whole"
        if name in ("signed, MD2", "signed, MD4"):
            said = SIGNATURE
        expected |= {(way, name, queue): said for queue in ("orders", "notes")}
    assert {key: said for key, said in run.without.items() if key[0] == way} == expected


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("case", CASES)
def test_what_a_peer_reads_otherwise_is_refused_by_class_or_not_said_to_be_signed(
    run: Run, case: str
) -> None:
    wrong, outcomes = {}, run.with_switches[case]
    assert outcomes
    for (way, name, queue), said in outcomes.items():
        names = (name, f"{name}/{queue}", f"{way} {name}", f"{way} {name}/{queue}")
        told = next((CASES[case][key] for key in names if key in CASES[case]), SAME)
        if not re.fullmatch(told or re.escape(run.without[way, name, queue]), said):
            wrong[way, name, queue] = said
    assert wrong == {}


def test_every_switch_that_is_about_keys_is_a_case() -> None:
    assert set(OF_KEYS) <= CASES.keys()


def test_our_node_notes_each_weak_cipher_and_breaks_nothing(run: Run) -> None:
    assert {"weak-cipher-sent", "weak-cipher-received", "message-refused"} <= run.events


async def refusal(it: Exchange, **wish: tuple[int, int]) -> str:
    """Return the class of the FinalAck for a message from the peer to the strict queue."""
    finals = it.peer.departures.finals
    message = it.peer.send(f"PRIVATE={OURS}\\{QUEUES['nowhere']:08x}", b"body", transactional=True, **wish)
    await it.peer.until(lambda: message.message_id in finals)
    return CLASSES[finals[message.message_id]]


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
async def test_without_insecure_nacks_a_final_ack_alone_says_so_and_ours_tells_itself(tmp_path: Path) -> None:
    it = Exchange(tmp_path, insecure_nacks=False)
    async with it.running():
        it.turn(Switches(signature_big_endian=True, simple_blob_256=True))
        with trio.fail_after(TOO_LONG_S):
            found = await it.exchange(INSECURE)
            it.turn()
            refused = [await refusal(it, **wish) for wish in REFUSED.values()]
    assert refused == list(REFUSED)
    for name, said in INSECURE.items():
        assert (found[TO_OURS, name, "orders"], found[TO_OURS, name, "notes"]) == (said, NOT_SAID)
        assert (found[TO_LETTER, name, "orders"], found[TO_LETTER, name, "notes"]) == (said, said)
