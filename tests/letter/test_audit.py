"""The auditor finds nothing wrong with a peer that follows the text.

It finds every deviation of a peer that does not follow the text.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from .audit import audit
from .peer.codec import Codec
from .peer.packets import AU, DE, EB, SID, SIGNED_20, Security, UserMessage
from .peer.switches import Switches
from .scenarios import TOLD, note, order, sends
from .wire import A, B, Wire, pair, private

SENDER = bytes(28)
EVERYTHING = sends(
    order(**TOLD, journal=True), order(private(10)), note(private(11)), note(recoverable=True), times=5
)


def faults(switches: Switches) -> list[str]:
    """Return the auditor's findings about two peers; B has some switches on."""
    wire = Wire()
    a, b = pair(wire, theirs=switches)
    trio.run(EVERYTHING, wire, a, b, clock=trio.testing.MockClock(autojump_threshold=0))
    return audit(A, b.heard) + audit(B, a.heard)


def test_a_peer_that_is_to_the_letter_passes() -> None:
    assert faults(Switches()) == []


@pytest.mark.parametrize(
    ("switch", "section"),
    [
        ("reserved_bits", "2.2.19.1"),
        ("junk", "2.2.4.1"),
        ("order_ack_priority", "2.2.4, 2.2.5"),
        ("order_ack_recoverable", "2.2.4, 2.2.5"),
        ("flags_absent", "2.2.20.4"),
    ],
)
def test_a_peer_that_is_not_is_found(switch: str, section: str) -> None:
    assert [fault for fault in faults(Switches(**{switch: True})) if f" {section}: " in fault]


@pytest.mark.parametrize(
    "security",
    [
        Security(SENDER, SID | AU),
        Security(SENDER, SID | SIGNED_20 << 8),
        Security(SENDER, SID | EB),
        Security(SENDER, SID, key=b"key"),
        Security(SENDER, 0),
        Security(b"", SID),
        Security(b"", 0),
        Security(SENDER, SID | DE, provider=b"provider"),
    ],
)
def test_a_security_header_that_nobody_may_send_is_found(security: Security) -> None:
    fair = UserMessage(A, B, private(10), security=Security(SENDER))
    assert audit(A, [Codec().pack(fair)]) == []
    assert audit(A, [Codec().pack(replace(fair, security=security))])
