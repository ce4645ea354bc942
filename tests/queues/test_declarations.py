"""Operators make, change and delete queues; their changes last, unless the declaration has changed since."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.manager import localqueues
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import Draft
from mqproto.queues.declarations import FIRST_IDENTIFIER
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import Routes
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import Note, QueueKind, ReadSequences
from mqproto.wire.guid import guid_text
from tests.pair import guid_of
from tests.windows import NOW

IDENTITY = guid_of("a")
ORDERS = QueueDeclaration("orders", 16, transactional=True)
NOTES = QueueDeclaration("notes", 17, quota_bytes=10_000)


class Node:
    """A queue manager with its disk, which may be killed between any two commits."""

    def __init__(self, *declared: QueueDeclaration) -> None:
        self.disk = Disk()
        self.notes: list[Note] = []
        self.start(*declared)

    def start(self, *declared: QueueDeclaration) -> None:
        """Start the node; data that was not committed is lost."""
        self.core = QueueManager(IDENTITY, declared, Routes(), Settings(), self.disk.load(), NOW)
        self.notes = []

    def commit(self) -> None:
        """Carry out batches until nothing is left to do, and write everything to the disk."""
        while True:
            batch = self.core.take(NOW)
            if batch.writes is not None:
                self.disk.commit(batch.writes)
            self.notes += batch.notes
            for page in batch.reads:
                assert not isinstance(page, ReadSequences)
                self.core.loaded(page, self.disk.read(page), NOW)
            if not batch.reads:
                return

    def send(self, queue: QueueDeclaration, body: bytes) -> None:
        """Make an application send a message that survives a restart."""
        destination = Destination(f"DIRECT=OS:a\\{queue.name}", IDENTITY, queue.identifier)
        draft = Draft(body=body, transactional=queue.transactional, recoverable=not queue.transactional)
        self.core.enqueue([(destination, draft)], NOW)

    def waiting(self) -> dict[str, int]:
        """Return the number of messages in each application queue."""
        return {one.name: one.waiting for one in self.core.status().local if "$" not in one.name}


def made(node: Node, name: str, **properties: Any) -> QueueDeclaration:
    return node.core.make(QueueDeclaration(name, 0, **properties))


def test_a_queue_that_is_made_is_there_after_a_kill_and_so_is_what_was_sent_to_it() -> None:
    node = Node(ORDERS)
    bills = made(node, "bills", transactional=True, journal=True)
    node.commit()
    node.send(bills, b"1")
    node.commit()
    node.start(ORDERS)
    assert node.core.declared == [ORDERS, bills]
    assert node.waiting() == {"orders": 0, "bills": 1, "bills;journal": 0}


def test_nothing_of_what_was_not_committed_is_there() -> None:
    node = Node(ORDERS)
    node.commit()
    made(node, "bills")
    node.core.delete("orders")
    node.start(ORDERS)
    assert node.core.declared == [ORDERS]


def test_no_queue_gets_the_number_of_another_not_even_of_one_that_is_gone() -> None:
    taken = replace(NOTES, identifier=FIRST_IDENTIFIER + 1)
    node = Node(ORDERS, taken)
    numbers = [made(node, name).identifier for name in ("one", "two")]
    node.core.delete("two")
    node.commit()
    node.start(ORDERS, taken)
    numbers += [made(node, name).identifier for name in ("two", "three")]
    assert numbers == [FIRST_IDENTIFIER + count for count in (0, 2, 3, 4)]


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        (QueueDeclaration("new", FIRST_IDENTIFIER), "id"),
        (QueueDeclaration("new", 18, public=guid_of("bills")), "GUID"),
        (QueueDeclaration("new", 18, connector=guid_of("bills")), "GUID"),
    ],
)
def test_a_queue_that_is_declared_with_what_is_anothers_is_refused_at_the_start(
    declared: QueueDeclaration, what: str
) -> None:
    node = Node(ORDERS)
    made(node, "bills", public=guid_of("bills"))
    node.commit()
    with pytest.raises(
        UsageError, match=rf"^new is declared with the {what} of bills, which an operator has made"
    ):
        node.start(ORDERS, declared)


def test_a_queue_keeps_what_is_in_it_when_it_is_changed_and_its_journal_goes_only_when_that_is_empty() -> (
    None
):
    node = Node(NOTES)
    node.commit()
    node.send(NOTES, b"1")
    node.core.change(replace(NOTES, journal=True, journal_quota_bytes=900, strangers=True))
    node.core.consume(1, "notes", 1, transactional=False)
    node.commit()
    assert node.waiting() == {"notes": 0, "notes;journal": 1}
    node.start(NOTES)
    node.commit()
    assert [one.quota_bytes for one in node.core.status().local if one.name == "notes;journal"] == [900]
    with pytest.raises(
        UsageError, match="notes;journal is not empty: receive what is there, or purge it, first"
    ):
        node.core.change(NOTES)
    node.core.purge("notes;journal")
    node.commit()
    node.core.change(replace(NOTES, quota_bytes=5))
    node.commit()
    node.start(NOTES)
    assert node.core.declared == [replace(NOTES, quota_bytes=5)]
    assert node.waiting() == {"notes": 0}


def test_what_is_left_of_a_deleted_queue_leaves_also_after_a_kill_and_is_not_in_the_next_of_its_name() -> (
    None
):
    node = Node(ORDERS)
    bills = made(node, "bills", journal=True)
    node.commit()
    for number in range(3):
        node.send(bills, bytes([number]))
    node.core.consume(1, "bills", 1, transactional=False)
    node.commit()
    assert node.waiting() == {"orders": 0, "bills": 2, "bills;journal": 1}
    assert node.core.delete("bills") == 3
    writes = node.core.take(NOW).writes
    assert writes is not None
    writes.removals.clear()  # The process is killed before they have left.
    node.disk.commit(writes)
    node.start(ORDERS)
    with pytest.raises(UsageError, match="3 messages of the queue BILLS that was deleted are still to leave"):
        made(node, "BILLS")
    node.commit()
    assert node.disk.messages == {}
    again = made(node, "BILLS", transactional=True)
    node.send(again, b"new")
    node.commit()
    node.start(ORDERS)
    assert node.waiting() == {"orders": 0, "BILLS": 1}


def test_places_in_the_store_are_used_again_when_very_many_queues_have_come_and_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(localqueues, "GONE", 3)
    node = Node(ORDERS)
    node.core.delete("orders")
    for number in range(40):
        queue = made(node, f"reply-{number}")
        node.send(queue, b"x")
        node.commit()
        node.core.delete(queue.name)
        node.commit()
        if number % 7 == 0:
            node.start(ORDERS)
    assert node.core.declared == []
    kinds = [queue.kind for queue in node.disk.queues.values()]
    assert kinds.count(QueueKind.LOCAL) < 12
    assert kinds.count(QueueKind.DECLARED) < 8


def test_a_connector_queue_may_be_changed_and_its_row_keeps_whose_it_is() -> None:
    connector = replace(NOTES, connector=guid_of("foreign"))
    other = replace(connector, name="xact", identifier=18, transactional=True)
    node = Node(connector, other)
    node.core.change(replace(connector, quota_bytes=5))
    node.commit()
    node.start(connector, other)
    assert node.core.declared == [replace(connector, quota_bytes=5), other]
    node.core.delete("xact")
    with pytest.raises(UsageError, match=r"^notes has this GUID already"):
        node.core.make(QueueDeclaration("bills", 0, connector=guid_of("foreign")))
    made(node, "bills", connector=guid_of("foreign"), transactional=True)
    node.start(connector)
    node.commit()
    assert node.notes == [], "what was not committed is gone"
    node.start(NOTES)
    node.commit()
    [note] = node.notes
    assert note.facts["was"] == (
        f"not transactional, connector queue of {guid_text(guid_of('foreign'))}, 5 bytes"
    )


# What is declared has changed since


@pytest.mark.parametrize("change", ["deleted", "changed", "made"])
@pytest.mark.parametrize("now", [None, replace(NOTES, quota_bytes=7), replace(NOTES, transactional=True)])
def test_what_is_declared_wins_if_it_has_changed_since_and_a_note_says_so(
    change: str, now: QueueDeclaration | None
) -> None:
    node = Node(ORDERS) if change == "made" else Node(ORDERS, NOTES)
    if change == "deleted":
        node.core.delete("notes")
    elif change == "changed":
        node.core.change(replace(NOTES, quota_bytes=5))
    else:
        made(node, "notes", journal=True)
    node.commit()
    declared = (ORDERS,) if now is None else (ORDERS, now)
    if change == "made" and now is None:
        node.start(*declared)  # It was not declared, and is not.
        assert [one.name for one in node.core.declared] == ["orders", "notes"]
        return
    for again in range(2):
        node.start(*declared)
        node.commit()
        assert node.core.declared == list(declared)
        names = [note.name for note in node.notes]
        is_news = not again and not (change == "deleted" and now is None)
        assert names == ["declared-otherwise"] * is_news
    if now is None:
        node.start(ORDERS, NOTES)
        assert node.core.declared == [ORDERS, NOTES], "what was done before is forgotten"


def test_another_number_because_of_a_queue_before_it_changes_nothing() -> None:
    node = Node(ORDERS, NOTES)
    node.core.change(replace(NOTES, quota_bytes=5))
    node.core.delete("orders")
    node.commit()
    node.start(QueueDeclaration("new", 16), replace(ORDERS, identifier=17), replace(NOTES, identifier=18))
    assert node.core.declared == [QueueDeclaration("new", 16), replace(NOTES, identifier=18, quota_bytes=5)]
    assert node.notes == []


# Any series of them

NAMES = ("orders", "Notes", "bills")
PROPERTIES = st.fixed_dictionaries(
    {
        "quota_bytes": st.sampled_from([None, 5_000, 9_000]),
        "journal": st.booleans(),
        "strangers": st.booleans(),
    }
)


class Operated(RuleBasedStateMachine):
    """Whatever operators do, and even with kills in between, the queues agree with a model.

    The model has the queues as operators made them, except where the file has changed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.file: dict[str, QueueDeclaration] = {}
        self.model: dict[str, tuple[bool, dict[str, Any]]] = {}
        """For each queue, whether it is transactional, and its other properties."""
        self.sent: dict[str, int] = {}
        self.node = Node()
        self.numbers: dict[int, str] = {}

    @initialize(declared=st.lists(st.sampled_from(NAMES[:2]), unique=True))
    def begin(self, declared: list[str]) -> None:
        self.file = {
            name.lower(): QueueDeclaration(name, 16 + NAMES.index(name), transactional=name == "orders")
            for name in declared
        }
        for key, queue in self.file.items():
            self.model[key] = queue.transactional, _rest(queue)
        self.node.start(*self.file.values())
        self.node.commit()

    @rule(name=st.sampled_from(NAMES), transactional=st.booleans(), properties=PROPERTIES)
    def make(self, name: str, transactional: bool, properties: dict[str, Any]) -> None:
        key = name.lower()
        if key in self.model:
            with pytest.raises(UsageError, match="has this name already"):
                made(self.node, name)
            return
        queue = made(self.node, name.upper(), transactional=transactional, **properties)
        if key not in self.file:
            assert queue.identifier not in self.numbers, "a number that was given before"
            self.numbers[queue.identifier] = key
        self.model[key] = transactional, properties
        self.node.commit()

    @rule(name=st.sampled_from(NAMES), properties=PROPERTIES)
    def change(self, name: str, properties: dict[str, Any]) -> None:
        key = name.lower()
        queue = next((one for one in self.node.core.declared if one.name.lower() == key), None)
        if queue is not None:
            self.node.core.change(replace(queue, **properties))
            self.model[key] = self.model[key][0], properties
            self.node.commit()

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        key = name.lower()
        if key in self.model:
            assert self.node.core.delete(name) == self.sent.pop(key, 0)
            del self.model[key]
            self.node.commit()

    @rule(name=st.sampled_from(NAMES))
    def send(self, name: str) -> None:
        key = name.lower()
        queue = next((one for one in self.node.core.declared if one.name.lower() == key), None)
        if queue is not None:
            self.node.send(queue, b"x")
            self.sent[key] = self.sent.get(key, 0) + 1
            self.node.commit()

    @rule()
    def kill(self) -> None:
        self.node.start(*self.file.values())
        self.node.commit()
        assert self.node.notes == []

    @rule(quota_bytes=st.sampled_from([6_000, 7_000]))
    def another_file(self, quota_bytes: int) -> None:
        """Change everything that the file declares; queues that it does not declare stay as they were made."""
        for key, queue in self.file.items():
            if queue.quota_bytes != quota_bytes:
                self.file[key] = replace(queue, quota_bytes=quota_bytes)
                self.model[key] = queue.transactional, _rest(self.file[key])
        self.node.start(*self.file.values())
        self.node.commit()

    @invariant()
    def there_is_what_the_model_says(self) -> None:
        found = {one.name.lower(): (one.transactional, _rest(one)) for one in self.node.core.declared}
        assert found == self.model
        counts = {name.lower(): count for name, count in self.node.waiting().items() if ";" not in name}
        assert counts == {key: self.sent.get(key, 0) for key in self.model}


def _rest(queue: QueueDeclaration) -> dict[str, Any]:
    return {"quota_bytes": queue.quota_bytes, "journal": queue.journal, "strangers": queue.strangers}


@pytest.mark.long
def test_any_series_of_orders_and_kills_has_the_queues_that_a_model_has() -> None:
    run_state_machine_as_test(Operated)
