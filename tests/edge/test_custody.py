"""Where a message is: producers get one answer for each way to end, and each life of a message has its own outcome."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.edge.custody import (
    OWNERS,
    STATES,
    Deed,
    End,
    Ended,
    Evidence,
    Removal,
    State,
    end_of,
    is_called,
    lives_of,
    owner_of,
    reason_of,
    state_of,
)
from mqproto.turn.effects import QueueKind

QUEUE, NAME = r"destination\orders", "GUID\\17"
NACK = {NAME: "NACK_Q_PURGED"}
GONE = [Removal(NAME, "ACK_RECEIVE")]
HEARD = {NAME: "ACK_RECEIVE"}
COPY = [Removal("GUID\\21", "ACK_RECEIVE")]


def known(**facts: Any) -> Evidence:
    return Evidence(QUEUE, "shop/order-17", [NAME], **facts)


@pytest.mark.parametrize(
    ("facts", "end", "state"),
    [
        ({"resolved": True, "processed": True}, End.RESOLVED, State.RESOLVED),
        ({"processed": True, "waits": True}, End.PROCESSED, State.PROCESSED),
        ({"copied": "business error"}, End.IN_ERROR_QUEUE, State.FAILED),
        ({"copied": "in doubt"}, End.IN_IN_DOUBT_QUEUE, State.IN_DOUBT),
        ({"has_letter": True, "ends": NACK}, End.DEAD_LETTER, State.DEAD_LETTER),
        ({"has_letter": True, "ends": NACK, "in_doubt": True}, End.LETTER_IN_DOUBT, State.IN_DOUBT),
        ({"ends": HEARD}, End.RECEIVED, State.RECEIVED),
        ({"waits": True}, End.IN_ITS_QUEUE, State.ACCEPTED),
        ({"waits": True, "started": True}, End.BEING_PROCESSED, State.BEING_PROCESSED),
        ({"on_its_way": True}, End.ON_ITS_WAY, State.ACCEPTED),
        ({"retained": True, "destination_is_here": False}, End.ON_ITS_WAY, State.ACCEPTED),
        ({"removals": GONE, "ends": NACK}, End.LETTER_TAKEN, State.DEAD_LETTER),
        ({"removals": GONE, "ends": NACK, "in_doubt": True}, End.LETTER_TAKEN, State.IN_DOUBT),
        (
            {"removals": COPY, "attempted": True, "told": True, "ends": HEARD},
            End.COPY_TAKEN,
            State.FAILED,
        ),
        (
            {"removals": COPY, "started": True, "attempted": True, "told": True, "ends": HEARD},
            End.COPY_TAKEN,
            State.IN_DOUBT,
        ),
        ({"removals": COPY, "attempted": True, "ends": HEARD}, End.COPY_TAKEN, State.RECEIVED),
        ({"processed": True, "told": True, "ends": HEARD}, End.PROCESSED, State.PROCESSED),
        ({"processed": True, "ends": HEARD}, End.PROCESSED, State.RECEIVED),
        ({"resolved": True, "ends": HEARD}, End.RESOLVED, State.RESOLVED),
        ({"removals": GONE, "deeds": {NAME: Deed.RESOLVED}}, End.RESOLVED, State.RESOLVED),
        ({"removals": GONE, "deeds": {NAME: Deed.ERASED}, "ends": NACK}, End.ERASED, State.DEAD_LETTER),
        ({"removals": GONE, "deeds": {NAME: Deed.RETRIED}}, End.UNACCOUNTED, State.ACCEPTED),
        ({"removals": GONE, "deeds": {NAME: Deed.SENT_AGAIN}}, End.UNACCOUNTED, State.ACCEPTED),
        ({"removals": COPY, "deeds": {"GUID\\21": Deed.NOT_RETRIED}}, End.COPY_TAKEN, State.ACCEPTED),
        ({"heard_elsewhere": True}, End.HEARD_ELSEWHERE, State.ACCEPTED),
        ({"is_old": True}, End.FORGOTTEN, State.ACCEPTED),
        ({"started": True}, End.UNACCOUNTED, State.BEING_PROCESSED),
    ],
)
def test_all_that_is_known_of_a_message_has_one_end_and_one_state(
    facts: dict[str, Any], end: End, state: State
) -> None:
    one = known(**facts)
    assert (end_of(one), state_of(one), one.node) == (end, state, "destination")
    assert owner_of(one) or end is End.BEING_PROCESSED
    assert bool(reason_of(one)) == (
        end in (End.IN_ERROR_QUEUE, End.DEAD_LETTER, End.LETTER_IN_DOUBT, End.COPY_TAKEN)
        or (end is End.LETTER_TAKEN and bool(one.ends))
    )


def test_each_end_is_had_by_somebody_named_or_by_a_store() -> None:
    in_stores = {
        End.IN_ERROR_QUEUE,
        End.IN_IN_DOUBT_QUEUE,
        End.DEAD_LETTER,
        End.LETTER_IN_DOUBT,
        End.IN_ITS_QUEUE,
        End.ON_ITS_WAY,
        End.BEING_PROCESSED,
    }
    assert set(OWNERS) | in_stores == set(End)
    assert set(End) - set(STATES) == {
        End.ERASED,
        End.COPY_TAKEN,
        End.LETTER_TAKEN,
        End.HEARD_ELSEWHERE,
        End.FORGOTTEN,
        End.UNACCOUNTED,
    }


def test_what_stores_have_says_who_has_it() -> None:
    one = known()
    one.found(QueueKind.FINAL, "sender", "x")
    one.found(QueueKind.LOCAL, "destination", "orders;journal")
    assert (one.retained, one.where, one.waits) == (True, "", False)
    one.found(QueueKind.SEQUENCE, "sender", "x")
    assert (end_of(one), owner_of(one)) == (End.ON_ITS_WAY, "sender")
    one.found(QueueKind.LOCAL, "destination", "orders")
    assert (end_of(one), owner_of(one)) == (End.IN_ITS_QUEUE, QUEUE)
    one.found(QueueKind.LOCAL, "sender", "system$;deadxact", is_letter=True)
    assert (end_of(one), owner_of(one)) == (End.DEAD_LETTER, r"sender\system$;deadxact")


def test_a_message_goes_by_its_identifiers_and_by_its_producers_id_with_his_name_or_without() -> None:
    one = known()
    one.sent_again("GUID\\18")
    for name in (NAME, "GUID\\18", "shop/order-17", "order-17"):
        assert is_called(name, one.key, one.names)
    for name in ("", "17", "GUID", "der-17", "GUID\\1"):
        assert not is_called(name, one.key, one.names)
    assert not is_called("", "", [])
    assert is_called("orders/17", "shop/orders/17", []), "a producer's name has no slash, and his id may"
    assert not is_called("17", "shop/orders/17", [])


def test_another_message_may_be_it_once_it_has_ended() -> None:
    """A message that is sent again has a different identifier."""
    assert not known().has_ended
    assert not known(ends={NAME: "ACK_RECEIVE"}).has_ended
    assert all(known(**one).has_ended for one in ({"attempted": True}, {"removals": GONE}, {"ends": NACK}))


def test_a_life_that_was_retried_is_beside_the_one_that_it_has() -> None:
    one = known(ends=dict(NACK), ended_s={NAME: 7})
    one.sent_again("GUID\\18")
    one.waits = True
    first = Ended(NAME, State.DEAD_LETTER, "NACK_Q_PURGED", 7)
    assert lives_of(one) == [first, Ended("GUID\\18", State.ACCEPTED)]
    one.lives[NAME] = Ended(NAME, State.IN_DOUBT, attempts=2, reason="no answer")
    assert lives_of(one)[0] == Ended(NAME, State.IN_DOUBT, "NACK_Q_PURGED", 7, 2, "no answer")
    one.sent_again("")
    assert [life.state for life in lives_of(one)] == [State.IN_DOUBT, State.FAILED, State.ACCEPTED]
