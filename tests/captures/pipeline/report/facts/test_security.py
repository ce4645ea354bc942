"""The report about the security of one message, at a glance and in full."""

from __future__ import annotations

import pytest

from mqproto.captures.pipeline.report.facts.security import Alike, Secured, Security, why_weak

NOTHING = Secured(None, None, None, None, None, None, None, None)
SIGNED = NOTHING._replace(sender_kind="SID", sender_id="S-1-5-7", signed="SHA-512")


@pytest.mark.parametrize(
    "name", ["MD2", "MD4", "MD5", "SHA-1", "RC2-40", "RC2-128", "RC2", "RC4-40", "RC4-128"]
)
def test_weak_algorithms_are_named_with_their_reason(name: str) -> None:
    assert why_weak(name)


@pytest.mark.parametrize("name", ["SHA-256", "SHA-512", "AES-128", "AES-192", "AES-256", "0x1234"])
def test_others_are_not(name: str) -> None:
    assert why_weak(name) is None


@pytest.mark.parametrize(
    ("said", "marks"),
    [
        (NOTHING, []),
        (NOTHING._replace(sender_kind="SID", sender_id="S-1-5-7"), []),
        (SIGNED, [("open", "signed SHA-512")]),
        (SIGNED._replace(verified=True), [("open", "signed SHA-512: holds, by nobody known")]),
        (SIGNED._replace(verified=True, signer="CN=a"), [("good", "signed SHA-512: holds")]),
        (SIGNED._replace(verified=True, signer="CN=a", signed="MD5"), [("open", "signed MD5, weak: holds")]),
        (SIGNED._replace(verified=False), [("bad", "signed SHA-512: does not hold")]),
        (NOTHING._replace(encrypted="AES-256"), [("good", "encrypted AES-256")]),
        (
            SIGNED._replace(encrypted="RC2-40"),
            [("open", "signed SHA-512"), ("open", "encrypted RC2-40, weak")],
        ),
    ],
)
def test_what_is_seen_at_a_glance(said: Secured, marks: list[tuple[str, str]]) -> None:
    assert said.marks() == marks


def test_in_full_it_is_told_what_nobody_proves_and_what_nobody_could_check() -> None:
    assert NOTHING.told() == {}
    assert SIGNED._replace(encrypted="RC4-128").told() == {
        "Sender, as it says": "SID S-1-5-7",
        "Signature": "SHA-512; not checked: no keys were at hand",
        "Encryption": "RC4-128, weak; not opened: no keys were at hand",
    }
    assert SIGNED._replace(verified=True, signature="holds, MSMQ 2.0, by CN=a").told()["Signature"] == (
        "SHA-512; holds, MSMQ 2.0, by CN=a"
    )


def test_messages_count_for_each_weak_algorithm_that_they_rest_on() -> None:
    alike = [
        Alike("SHA-1", True, messages=2),
        Alike("SHA-256", True, messages=3),
        Alike("SHA-1", True, messages=5),
    ]
    found = Security(signatures=alike, ciphers=[Alike("RC4-40", False, messages=1)])
    assert found.weak() == {"SHA-1": 7, "RC4-40": 1}
