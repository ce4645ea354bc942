"""OrderAcks and FinalAcks at the sender: what they decide, whenever and however often they come."""

from __future__ import annotations

import pytest

from mqproto.configuration import Settings
from mqproto.effects import QueueKind
from mqproto.wire import MessageClass
from tests.observing import DEADXACT, ended, final_acks
from tests.pair import Net, at, chain, queue

ORDERS = queue("orders")
QUICK = Settings(
    try_connect_interval_ms=200,
    resend_timeouts_short_s=1,
    resend_timeouts_medium_s=2,
    resend_timeouts_long_s=3,
    resend_timeouts_final_s=4,
)


@pytest.fixture
def net() -> Net:
    return chain("a", "b", "c", queues=[ORDERS], settings=QUICK)


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_message_that_was_refused_in_several_copies_at_once_is_one_dead_letter(net: Net) -> None:
    """The resends wait at the intermediate, arrive together, and each is answered; the answers come together too."""
    net.kill("c")
    net.send("a", at("c", 99), "nowhere", transactional=True, journal_negative=True)
    net.pass_ms(5_000)
    assert net.nodes["b"].store.waiting(QueueKind.OUTGOING) >= 3
    net.start("c")
    net.pass_ms(5_000)
    assert len(final_acks(net, "b", "a")) >= 3
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_BAD_DST_Q, b"nowhere")]
    assert net.nodes["a"].store.waiting(QueueKind.ORDER) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_an_own_message_that_comes_back_in_circles_is_one_dead_letter_and_the_sequence_goes_on(
    net: Net,
) -> None:
    """It goes to and fro between `a` and `b`, and the hop that is one too many leads to `a`."""
    net.route("b", "c", "a")
    net.start("b")
    net.send("a", at("c"), "lost", transactional=True, journal_negative=True)
    net.pass_ms(10_000)
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_HOP_COUNT_EXCEEDED, b"lost")]
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0
    net.kill("b")
    net.route("b", "c", "c")
    net.start("b")
    net.send("a", at("c"), "found", transactional=True, journal_negative=True)
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"found"]
