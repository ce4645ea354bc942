"""An intermediate's knowledge about others' messages that wait in its queues."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.transfer import outgoing
from mqproto.transfer.outgoing import AS_IT_IS
from mqproto.wire.glance import identifier_of
from tests.examples import a_transaction_header
from tests.windows import Carrier, a_packet, body_of, header_of


class Intermediate(Carrier):
    """A queue of messages that others have numbered."""

    def pass_on(self, number: int, *, previous: int | None = None) -> bool:
        """Let message `number` arrive, for the first time or again; return whether it joins."""
        header = a_transaction_header(
            tx_sequence_number=number,
            previous_tx_sequence_number=number - 1 if previous is None else previous,
        )
        packet = a_packet(number, message_id=number, transaction=header)
        name = identifier_of(packet)
        earlier = self.queue.earlier_copy(name, packet)
        if earlier == AS_IT_IS:
            return False
        if earlier is not None:
            self.queue.delete(earlier, self.writes)
        self.queue.pass_on(self.queue.rows([packet], [number], recoverable=True), [name], self.writes)
        self.commit()
        return True

    def stored_numbers(self) -> list[int]:
        return [header_of(row.packet).tx_sequence_number for row in self.store.messages.values()]


def test_a_resend_that_finds_its_earlier_copy_waiting_changes_nothing() -> None:
    queue = Intermediate()
    for _ in range(4):
        joined = [queue.pass_on(number) for number in range(1, 21)]
    assert not any(joined)
    assert queue.stored_numbers() == list(range(1, 21)), "three in memory, the others on disk alone"
    assert [body_of(entry.packet) for entry in queue.take_all()] == [str(n) for n in range(1, 21)]


@pytest.mark.parametrize("number", [2, 15], ids=["in memory", "on disk alone"])
def test_one_with_other_bytes_takes_the_place_of_its_earlier_copy_in_one_transaction(number: int) -> None:
    queue = Intermediate()
    for each in range(1, 21):
        queue.pass_on(each)
    before = queue.store.commit_count
    assert queue.pass_on(number, previous=0)
    assert queue.store.commit_count == before + 1
    assert not queue.pass_on(number, previous=0)
    taken = queue.take_all()
    assert [header_of(one.packet).tx_sequence_number for one in taken] == [
        *(n for n in range(1, 21) if n != number),
        number,
    ]
    assert header_of(taken[-1].packet).previous_tx_sequence_number == 0
    queue.queue.acknowledged(taken, queue.writes)
    queue.commit_all()
    assert queue.store.messages == {}
    assert queue.queue.count == 0


def test_a_copy_that_came_while_the_first_was_out_leaves_when_that_is_held_back() -> None:
    """The copy would be refused like the first, as if the next hop refused everything."""
    queue = Intermediate()
    for number in (1, 2, 3):
        queue.pass_on(number)
    entries, _ = queue.take_run(2, 1_000_000)
    assert queue.pass_on(1)
    assert queue.pass_on(2, previous=0)
    for entry in entries:
        queue.queue.withhold(entry, queue.writes)
    queue.commit_all()
    assert queue.stored_numbers() == [1, 2, 3, 2], "of the second the bytes differ"
    assert queue.queue.count == 4
    assert not queue.pass_on(1)
    assert [body_of(one.packet) for one in queue.take_all()] == ["3", "2"]


def test_one_that_comes_after_the_next_hop_was_sent_the_first_is_passed_on_again() -> None:
    queue = Intermediate()
    queue.pass_on(1)
    queue.pass_on(2)
    entry = queue.take()
    assert queue.pass_on(1)
    assert not queue.pass_on(2)
    queue.queue.acknowledged([entry], queue.writes)  # type: ignore[list-item]
    assert [body_of(one.packet) for one in queue.take_all()] == ["2", "1"]
    assert queue.pass_on(2)


def test_what_comes_back_from_a_broken_connection_waits_again() -> None:
    queue = Intermediate()
    for number in (1, 2):
        queue.pass_on(number)
    entries = queue.take_all()
    queue.queue.returned(entries)
    assert not any(queue.pass_on(number) for number in (1, 2))
    assert [body_of(one.packet) for one in queue.take_all()] == ["1", "2"]


def test_what_was_forgotten_when_it_had_left_is_known_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "COPIES_KNOWN", 4)
    queue = Intermediate()
    for number in (1, 2):
        queue.pass_on(number)
    entries = queue.take_all()
    for number in (3, 4, 5):
        queue.pass_on(number)
    assert len(queue.queue.copies) == 3, "those that have left made room"
    queue.queue.returned(entries)
    assert [queue.pass_on(number) for number in (1, 3)] == [False, False]


def test_what_was_deleted_or_purged_waits_no_more() -> None:
    queue = Intermediate()
    queue.pass_on(1)
    assert queue.queue.delete(1, queue.writes)
    queue.commit()
    assert queue.pass_on(1)


def test_after_a_restart_it_is_known_what_was_read_from_disk() -> None:
    queue = Intermediate()
    for number in range(1, 11):
        queue.pass_on(number)
    queue.restart()
    [pages] = [queue.wanted()]
    queue.loaded(pages)
    known = len(queue.queue.window)
    assert known
    assert [queue.pass_on(number) for number in range(1, 11)] == [number > known for number in range(1, 11)]
    assert not any(queue.pass_on(number) for number in range(1, 11)), "each is stored once more at most"
    assert queue.queue.count == 20 - known


def test_only_so_many_are_known_as_the_bound_says_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "COPIES_KNOWN", 3)
    queue = Intermediate()
    assert all(queue.pass_on(number) for number in range(1, 6))
    assert [queue.pass_on(number) for number in range(1, 6)] == [False, False, False, True, True]
    assert len(queue.queue.copies) == 3
    queue.take_all()
    assert [queue.pass_on(number) for number in range(1, 6)] == [True] * 5
    assert [queue.pass_on(number) for number in range(1, 6)] == [False, False, False, True, True]
    assert len(queue.queue.copies) == 3


@given(data=st.data())
def test_whatever_comes_again_the_last_bytes_of_each_leave_and_nothing_is_kept_of_what_left(
    data: Any,
) -> None:
    queue = Intermediate()
    newest: dict[int, int] = {}
    for _ in range(data.draw(st.integers(0, 40))):
        step = data.draw(st.sampled_from(["come", "come", "come", "send", "break", "read", "delete"]))
        number = data.draw(st.integers(1, 8))
        if step == "come":
            newest[number] = data.draw(st.integers(0, 1))
            queue.pass_on(number, previous=newest[number])
        elif step == "delete":
            position = queue.queue.copies.waiting(identifier_of(a_packet(number, message_id=number)))
            if position is not None:
                assert queue.queue.delete(position, queue.writes)
                queue.commit()
                newest.pop(number, None)
        elif step == "read":
            queue.loaded(queue.wanted())
        else:
            entries, _ = queue.take_run(3, 10_000)
            if step == "break":
                queue.queue.returned(entries)
            else:
                queue.queue.acknowledged(entries, queue.writes)
                for entry in entries:
                    newest.pop(header_of(entry.packet).tx_sequence_number, None)
    left: dict[int, int] = {}
    for entry in queue.take_all():
        header = header_of(entry.packet)
        left[header.tx_sequence_number] = header.previous_tx_sequence_number
    assert newest.items() <= left.items()
    for number in range(1, 9):
        assert queue.queue.copies.waiting(identifier_of(a_packet(number, message_id=number))) is None
