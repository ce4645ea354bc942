"""Senders, signatures and encryption: counted by message, however many packets each message took."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mqproto.captures.pipeline.report.counts import security as counting
from mqproto.captures.pipeline.report.counts.messages import Sought
from mqproto.captures.pipeline.report.facts.facts import Facts
from mqproto.captures.pipeline.report.gather import find, gather
from mqproto.captures.pipeline.report.page import page
from mqproto.captures.pipeline.report.summary import as_json, lines, story
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import BEGIN_NS, Rows, capture, history, hop, made_up
from tests.captures.pipeline.report.test_page import read

NAMED = {"security_header": True, "sender_kind": "SID", "sender_id": "S-1-5-7"}
KNOWN = {"verified": True, "signer": "CN=a", "signature": "holds, MSMQ 2.0, by CN=a"}
SORTS: list[dict[str, Any]] = [
    {"security_header": False},
    {"security_header": None},
    {"security_header": True},
    NAMED,
    NAMED | KNOWN | {"signed": "SHA-512"},
    NAMED
    | {
        "signed": "MD5",
        "verified": True,
        "signature": "holds, MSMQ 1.0, by CN=b (self-signed, not in --keys)",
    },
    NAMED | {"signed": "SHA-1", "verified": False, "signature": "does not hold, by its certificate of CN=c"},
    NAMED | {"signed": "SHA-256", "signature": "not checked: MD2 is of no use"},
    {"security_header": True, "encrypted": "RC2-40", "decryption": "not opened: no key at hand"},
    NAMED
    | KNOWN
    | {"signed": "SHA-512", "encrypted": "AES-256", "decryption": "opened with a.pem", "plain_bytes": 7},
]
"""All combinations of what a message may claim, and what keys may prove about it."""


def secured_rows(sorts: list[dict[str, Any]]) -> dict[str, Rows]:
    """Return messages over two hops in two series, some of them sent again.

    All packets of a message make the same claims.
    """
    histories, hops, packets = [], [], []
    for number, sort in enumerate(sorts):
        series = f"{'day' if number % 2 else 'night'}.pcapng"
        first = 3 * (number // 2) + 5
        row = history(number, series=series, row_id=first) | {"number": first}
        histories.append(row)
        for position, ends in enumerate(("ab", "bc", "bc")):
            place = {
                "series": series,
                "row_id": first + position,
                "number": first + position,
            }
            packets.append(
                place | {"framed": True, "kind": "Transactional", "message": row["message"], "file": series}
                | {"time_ns": BEGIN_NS + number, "frame": 1, "size_bytes": 9, **sort}
            )  # fmt: skip
            if position < 2:
                hops.append(hop(row["message"], position + 1, ends, BEGIN_NS + number, **place))
    return {"captures": [capture()], "histories": histories, "hops": hops, "packets": packets}


def many() -> list[dict[str, Any]]:
    """Return messages of all sorts in mixed order, with a different number of each sort."""
    sorts = [sort for count, sort in enumerate(SORTS, 1) for _ in range(count)]
    random.Random(7).shuffle(sorts)
    return sorts


def section(facts: Facts) -> str:
    """Return the page's section about security."""
    return read(page(facts).partition('<section id="security">')[2].partition("</section>")[0]).text


def test_each_message_counts_once_however_often_it_was_seen(tmp_path: Path) -> None:
    sorts = many()
    found = gather(made_up(tmp_path / "out", secured_rows(sorts), part_rows=31)).security

    def count(**wanted: Any) -> int:
        return sum(all(sort.get(name) == value for name, value in wanted.items()) for sort in sorts)

    signed = sum("signed" in sort for sort in sorts)
    assert (found.signed, found.encrypted, found.both) == (signed, 9 + 10, 10)
    assert (found.named, found.claimed) == (4 + 5 + 6 + 7 + 8 + 10, 4)
    assert (found.headed, found.unknown, found.bare) == (len(sorts) - 1 - 2, 2, 1 + 3 + 4)
    assert (found.holding, found.proved, found.failing) == (count(verified=True), 5 + 10, 7)
    assert (found.opened, found.altered, found.has_keys) == (10, 2 * 7, True)
    assert [(each.algorithm, each.messages, each.holds) for each in found.signatures] == [
        ("SHA-1", 7, False),
        ("SHA-512", 15, True),
        ("SHA-256", 8, None),
        ("MD5", 6, True),
    ]
    assert [(each.algorithm, each.messages) for each in found.ciphers] == [("AES-256", 10), ("RC2-40", 9)]
    assert found.weak() == {"SHA-1": 7, "MD5": 6, "RC2-40": 9}


def test_of_too_many_sorts_of_signers_some_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "SORTS_KEPT", 3)
    sorts = [NAMED | {"sender_id": f"S-1-5-{number}", "signed": "SHA-512"} for number in range(10)]
    facts = gather(made_up(tmp_path / "out", secured_rows(sorts)))
    assert (len(facts.security.signatures), facts.security.left_out) == (3, 7)
    assert "And 7 messages of other sorts, of which there are too many." in section(facts)


def test_the_page_says_what_is_signed_encrypted_weak_and_does_not_hold(tmp_path: Path) -> None:
    sorts = many()
    tables = made_up(tmp_path / "out", secured_rows(sorts))
    facts = gather(tables)
    reader = read(page(facts))
    assert "7 with a signature that does not hold" in reader.text
    assert "are signed 36 65 %" in reader.text
    assert "Of 7 messages the signature does not hold. So do 14 further packets." in reader.text
    assert "6 messages with MD5: whoever signs may have another text ready" in reader.text
    assert "9 messages with RC2-40: anybody can try all its keys" in reader.text
    assert "SHA-1 weak 7 fails does not hold, by its certificate of CN=c SID S-1-5-7" in reader.text
    assert "No keys were at hand" not in reader.text
    said = "\n".join(lines(facts))
    assert "of 55 messages: 36 signed, 4 not signed that name a sender, 19 encrypted, 8 neither" in said
    assert "  signed SHA-1, weak by SID S-1-5-7, 7: does not hold, by its certificate of CN=c" in said
    assert as_json(facts)["security"]["weak"] == {"SHA-1": 7, "MD5": 6, "RC2-40": 9}
    failed = next(row for row, sort in zip(facts.messages.embedded, sorts, strict=True) if sort is SORTS[6])
    [told] = find(tables, Sought(failed["message"]), 2)
    text = "\n".join(story(*told))
    assert "  Signature: SHA-1, weak; does not hold, by its certificate of CN=c" in text
    assert "went from a to b, with a signature that does not hold" in text


def test_a_signature_that_is_broken_on_the_way_does_not_hold(tmp_path: Path) -> None:
    rows = secured_rows([SORTS[4]])
    rows["packets"][1] |= {
        "verified": False,
        "signer": None,
        "signature": "does not hold, by its certificate of CN=a",
    }
    facts = gather(made_up(tmp_path / "out", rows))
    assert (facts.security.holding, facts.security.failing, facts.security.altered) == (1, 0, 1)
    [told_of] = facts.messages.stories.values()
    assert told_of.secured is not None
    assert told_of.secured.marks() == [("bad", "signed SHA-512: does not hold")]
    assert told_of.secured.signature == "does not hold, by its certificate of CN=a, from b to c"
    assert "So does 1 further packet." in section(facts)


def test_without_keys_the_page_says_how_to_have_signatures_checked(tmp_path: Path) -> None:
    text = section(gather(made_up(tmp_path / "out", secured_rows([NAMED | {"signed": "SHA-512"}]))))
    assert "No keys were at hand, so no signature was checked and no body opened." in text
    assert "not checked: no keys were at hand" in text
    assert "does not hold" not in text


@pytest.mark.long
def test_where_nothing_is_protected_nothing_is_said_of_it(gap_held: Tables, gap_held_page: str) -> None:
    assert 'id="security"' not in gap_held_page
    assert "#security" not in gap_held_page
    facts = gather(gap_held)
    assert facts.security.bare == facts.messages.count
    assert "signed" not in "\n".join(lines(facts))
