"""The positions in an outgoing sequence: whatever happens, they keep the order that the picture shows."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.transfer import cursors
from mqproto.transfer.cursors import CEILING_BLOCK, Cursors


@given(st.data())
def test_the_places_stay_in_order_through_sends_acknowledgments_resends_and_restarts(
    data: st.DataObject,
) -> None:
    last = data.draw(st.integers(0, 1_000))
    places = Cursors(last)
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["join", "send", "save", "acknowledge", "resend", "restart"]))
        if step == "join":
            last += data.draw(st.integers(1, 600))
        elif step == "send":
            sent = data.draw(st.integers(places.acknowledged, last))
            raised = places.send(sent)
            assert places.stored_ceiling >= places.sent_ceiling
            assert not raised or places.stored_ceiling == places.sent_ceiling + CEILING_BLOCK
        elif step == "save":
            saved = data.draw(st.integers(places.base, places.sent_ceiling))
            before = places.saved_through
            assert places.save(saved) == (saved > before)
        elif step == "acknowledge":
            places.acknowledge(
                data.draw(st.integers(places.acknowledged, max(places.acknowledged, places.sent_ceiling)))
            )
            if places.acknowledged == last:
                places.begin(last)
        elif step == "resend":
            places.begin_resend(places.sent_ceiling)
            assert (places.resend_after, places.resend_through) == (places.acknowledged, places.sent_ceiling)
        else:
            row = places.base, places.acknowledged, places.saved_through, places.stored_ceiling
            known = places.sent_ceiling
            places = Cursors(last)
            places.restore(*row, last)
            assert places.sent_ceiling >= known or known <= row[1], (
                "what was sent is known to be, after a restart too"
            )
        places.check(last)


def test_a_resend_is_over_when_more_has_arrived_than_was_sent_again() -> None:
    places = Cursors(0)
    places.send(10)
    places.begin_resend(10)
    places.resent_through = 4
    assert not places.acknowledge(4)
    assert places.acknowledge(5)


def test_a_store_whose_places_are_out_of_order_is_refused() -> None:
    with pytest.raises(AssertionError, match="out of order"):
        Cursors(0).restore(base=5, acknowledged=3, saved_through=3, ceiling=9, last=9)


def test_the_ceiling_runs_ahead_so_that_few_sends_wait_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "CEILING_BLOCK", 10)
    places = Cursors(0)
    assert [position for position in range(1, 30) if places.send(position)] == [1, 12, 23]
