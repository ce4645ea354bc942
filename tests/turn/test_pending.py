"""Which writes are made now, and which may wait."""

from __future__ import annotations

import pytest

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.turn.effects import (
    FinalAckKept,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    QueueKind,
    QueueRow,
    Writes,
    message_key,
)
from mqproto.turn.pending import LAZY_WRITES_DELAY_MS, PURGED_UNTIL, PendingWrites, purges_of
from mqproto.wire import NULL_GUID

NOW = Moment(1_000, 0)


class Sequence:
    """A sequence whose row shows how often the row was asked for."""

    def __init__(self, kind: type[OutgoingRow] | type[IncomingRow]) -> None:
        self.kind = kind
        self.asked = 0

    def row(self) -> OutgoingRow | IncomingRow:
        self.asked += 1
        if self.kind is OutgoingRow:
            return OutgoingRow(3, NULL_GUID, 0, 0, 0, 0, 0, self.asked, 0)
        return IncomingRow(NULL_GUID, 4, 0, 0, self.asked, 0, 0, "")


def pending() -> tuple[PendingWrites, Timers]:
    timers = Timers()
    return PendingWrites(timers), timers


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.2")
def test_what_somebody_is_told_of_is_written_in_this_turn_and_takes_along_what_could_wait() -> None:
    writes, timers = pending()
    writes.later.remove(1, 5, 6)
    writes.put([MessageRow(message_key(1, 7), b"x", 9, False)], "orders")
    taken = writes.take(NOW)
    assert taken is not None
    assert taken.removals == [(message_key(1, 5), message_key(1, 6))]
    assert [row.message_id for row in taken.messages] == [9]
    assert writes.take(NOW) is None
    assert timers.next_ms is None


def test_whatever_is_put_among_what_is_to_be_written_now_is_written_in_this_turn() -> None:
    writes, _ = pending()
    writes.later.lasting.append(7)
    writes.urgent().counters["ceiling"] = 5
    taken = writes.take(NOW)
    assert taken is not None
    assert (taken.counters, taken.lasting) == ({"ceiling": 5}, [7])
    assert writes.take(NOW) is None


def test_what_only_forgets_waits_a_second_for_company() -> None:
    writes, timers = pending()
    writes.later.remove(1, 5, 5)
    assert writes.take(NOW) is None
    assert timers.deadline_ms(Timer.LAZY_WRITES, None) == NOW.uptime_ms + LAZY_WRITES_DELAY_MS
    assert writes.take(Moment(1_500, 0)) is None
    assert timers.deadline_ms(Timer.LAZY_WRITES, None) == NOW.uptime_ms + LAZY_WRITES_DELAY_MS, "not put off"
    writes.force()
    taken = writes.take(Moment(2_000, 0))
    assert taken is not None
    assert taken.removals
    assert not timers.runs(Timer.LAZY_WRITES, None)


def test_a_sequence_that_changes_often_is_written_once_as_it_is_at_the_commit() -> None:
    writes, _ = pending()
    outgoing, incoming = Sequence(OutgoingRow), Sequence(IncomingRow)
    for _ in range(3):
        writes.changed(outgoing, urgent=False)
        writes.changed(incoming, urgent=True)
    taken = writes.take(NOW)
    assert taken is not None
    assert [row.saved_through for row in taken.outgoing.values()] == [1]
    assert [row and row.number for row in taken.incoming.values()] == [1]
    assert writes.take(NOW) is None


def test_a_lazy_change_of_a_sequence_waits_too() -> None:
    writes, timers = pending()
    writes.changed(Sequence(OutgoingRow), urgent=False)
    assert writes.take(NOW) is None
    assert timers.runs(Timer.LAZY_WRITES, None)


def test_urgency_without_anything_to_write_makes_no_transaction() -> None:
    writes, _ = pending()
    writes.force()
    assert writes.take(NOW) is None


def test_an_outcome_joins_what_its_operation_wrote_and_is_not_written_by_itself_unless_it_must() -> None:
    writes, timers = pending()
    outcomes: dict[tuple[bytes, int], OutcomeRow | None] = {(b"i", 1): None}
    assert not writes.accompany(outcomes, needed=False)
    assert writes.take(NOW) is None
    assert timers.next_ms is None
    writes.urgent().counters["ceiling"] = 5
    assert writes.accompany(outcomes, needed=False)
    taken = writes.take(NOW)
    assert taken is not None
    assert taken.outcomes == outcomes
    assert writes.accompany(outcomes, needed=True)
    taken = writes.take(NOW)
    assert taken is not None
    assert taken.outcomes == outcomes


def test_what_moves_on_for_its_final_ack_is_not_removed_wholly() -> None:
    writes, _ = pending()
    first, last = message_key(3, 5), message_key(3, 9)
    writes.later.finals.append(FinalAckKept(first, first + 1, final_queue=4))
    writes.later.remove(3, 5, 9)
    assert [writes.removes(key) for key in range(first - 1, last + 2)] == [False] * 3 + [True] * 3 + [False]
    writes.urgent()
    writes.take(NOW)
    assert not writes.removes(last)


def test_neighbouring_removals_become_one_range_and_others_stay_apart() -> None:
    writes = Writes()
    writes.remove(1, 1, 2)
    writes.remove(1, 3, 3)
    writes.remove(1, 5, 5)
    writes.remove(2, 6, 6)
    key = message_key
    assert writes.removals == [(key(1, 1), key(1, 3)), (key(1, 5), key(1, 5)), (key(2, 6), key(2, 6))]


@pytest.mark.parametrize(
    "change",
    [
        lambda writes: writes.queues.append(QueueRow(1, QueueKind.LOCAL, "q")),
        lambda writes: writes.moves.append((1, 2, None)),
        lambda writes: writes.lasting.append(1),
        lambda writes: writes.counters.update(a=1),
        lambda writes: writes.forget_identifiers(NULL_GUID, [1]),
        lambda writes: writes.outcomes.update({(b"i", 1): None}),
        lambda writes: writes.forgotten_invokers.append(b"i"),
    ],
)
def test_a_transaction_with_anything_in_it_counts_as_one(change: object) -> None:
    writes = Writes()
    assert not writes
    assert callable(change)
    change(writes)
    assert writes


def test_what_strangers_cause_waits_while_the_disk_is_full_and_of_each_row_the_last_is_written_then() -> None:
    writes, timers = pending()
    writes.has_room(False)
    for name in ("one", "the same later"):
        writes.put_row(QueueRow(7, QueueKind.MET, name), urgent=False)
    writes.put_row(QueueRow(8, QueueKind.MET, "another"), urgent=False)
    writes.force()
    assert writes.take(NOW) is None
    assert not timers.runs(Timer.LAZY_WRITES, None)
    writes.has_room(True)
    writes.force()
    taken = writes.take(NOW)
    assert taken is not None
    assert [row.name for row in taken.queues] == ["the same later", "another"]
    writes.has_room(True)
    writes.force()
    assert writes.take(NOW) is None


def test_what_an_operator_says_is_written_though_the_disk_is_full_and_nothing_older_after_it() -> None:
    writes, _ = pending()
    writes.has_room(False)
    writes.put_row(QueueRow(7, QueueKind.MET, "met"), urgent=False)
    writes.put_row(QueueRow(7, QueueKind.MET, "named by an operator"), urgent=True)
    taken = writes.take(NOW)
    assert taken is not None
    assert [row.name for row in taken.queues] == ["named by an operator"]
    writes.has_room(True)
    writes.force()
    assert writes.take(NOW) is None


def test_that_a_queue_is_purged_is_written_at_once_with_what_came_of_it_and_that_it_was_when_it_suits() -> (
    None
):
    writes, _ = pending()
    writes.purge_until(7, 600)
    outcome: dict[tuple[bytes, int], OutcomeRow | None] = {
        (b"invoker", 3): OutcomeRow(b"invoker", 3, b"600", False, 0)
    }
    assert writes.accompany(outcome, needed=False)
    taken = writes.take(NOW)
    assert taken is not None
    assert (purges_of(taken.counters), taken.outcomes) == ({7: 600}, outcome)
    writes.purge_until(7, 0)
    assert writes.take(NOW) is None
    writes.force()
    assert (taken := writes.take(NOW)) is not None
    assert taken.counters == {f"{PURGED_UNTIL}7": 0}
    assert purges_of(taken.counters | {"another": 5, f"{PURGED_UNTIL}8": 9}) == {8: 9}
