"""In an SQLite store, one damaged row affects only one message: all others arrive once and in order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from mqproto.base.configuration import Settings
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import LogLimits, Store
from mqproto.turn.effects import POSITION_BITS, HurtPacket, QueueKind, ReadBy, ReadPage
from mqproto.wire import MessageClass, UserMessage
from tests.observing import DEADLETTER, DEADXACT, final_acks, kept
from tests.pair import Net, at, chain, guid_of, queue

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
ADMIN = queue("admin", 5, transactional=False)
NOTES_17, ORDERS_16 = 17, 16
SMALL: Final = LogLimits(segment_bytes=1 << 20, reserve_bytes=0)
"""The limits of a log: because hundreds of stores are opened here, none of them reserves 16 MiB."""
COUNT: Final = 12
BODY: Final = 900

HURTS: Final = {
    "a byte of the body": "packet = CAST(substr(packet, 1, 700) || '!' || substr(packet, 702) AS BLOB)",
    "a byte of the head": "packet = CAST(substr(packet, 1, 60) || x'FF' || substr(packet, 62) AS BLOB)",
    "cut in the body": "packet = substr(packet, 1, 500)",
    "cut in the head": "packet = substr(packet, 1, 50)",
    "nothing left": "packet = x''",
    "zeros": "packet = zeroblob(length(packet))",
    "longer": "packet = CAST(packet || x'00000000' AS BLOB)",
    "text": "packet = CAST(packet AS TEXT)",
    "a number": "packet = 7",
    "another checksum": "checksum = checksum + 1",
    "another MessageID": "message_id = message_id + 1",
    "a MessageID that is none": "message_id = 'none'",
    "final_ack": "final_ack = 1 - final_ack",
    "expires_s": "expires_s = 5",
}


def body(number: int) -> bytes:
    return f"{number:03}".encode() * (BODY // 3)


def numbers(found: list[bytes]) -> list[int]:
    return [int(one[:3]) for one in found]


class Stores:
    """The nodes of a Net, with stores on disk that can be damaged between two lives of a node."""

    def __init__(self, folder: Path) -> None:
        self.net = chain("a", "b", "c", queues=[ORDERS, NOTES], settings=Settings(resident_messages=4))
        self.net.nodes["a"].queues = (ADMIN,)
        self._folder = folder
        self._opened: dict[str, Store] = {}
        for name in self.net.nodes:
            self.open(name)
        self.net.start()

    def path(self, name: str) -> Path:
        return self._folder / f"{name}.sqlite"

    def open(self, name: str) -> None:
        self._opened[name] = Store(self.path(name), guid_of(name), SMALL)
        self.net.nodes[name].store = self._opened[name]  # type: ignore[assignment]

    def close(self, *names: str) -> None:
        for name in names:
            self.net.kill(name)
            self._opened.pop(name).close()

    def end(self) -> None:
        """Close all stores."""
        for store in self._opened.values():
            store.close()

    def start(self, *names: str) -> None:
        for name in names:
            self.open(name)
            self.net.start(name)
        self.net.run()

    def rows(self, name: str, statement: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path(name))) as db, db:
            db.text_factory = lambda data: data.decode(errors="replace")
            return db.execute(statement, values).fetchall()

    def hurt(self, name: str, kind: QueueKind, how: str, *which: int) -> list[Any]:
        """Damage the packets of some messages, given by their places in a queue of this kind; return the damaged
        rows.
        """
        found = self.rows(
            name,
            "SELECT key FROM message JOIN queue ON key >> 40 = queue.queue WHERE kind = ? ORDER BY key",
            kind,
        )
        keys = [found[place][0] for place in which]
        columns = "key, packet, message_id, final_ack, expires_s, checksum"
        for key in keys:
            self.rows(name, f"UPDATE message SET {HURTS[how]} WHERE key = ?", key)
        return [
            row
            for key in keys
            for row in self.rows(name, f"SELECT {columns} FROM message WHERE key = ?", key)
        ]

    def waiting(self, name: str) -> dict[str, int]:
        found = self.rows(
            name, "SELECT kind, count(*) FROM message JOIN queue ON key >> 40 = queue.queue GROUP BY kind"
        )
        return dict(found)

    def quarantine(self, name: str) -> list[Any]:
        return self.rows(name, "SELECT * FROM quarantine")

    def opens_whole(self, name: str) -> None:
        """Check that a store that is closed and opened again has nothing to report, and that all its counts are
        right.
        """
        self.close(name)
        self.start(name)
        assert self.net.nodes[name].up.status().damaged == 0
        self.close(name)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.end()


def take(net: Net, name: str, where: str) -> list[UserMessage]:
    """Take all messages from a queue, and return them."""
    node, found = net.nodes[name], list[UserMessage]()
    while not node.up.is_empty(where):
        node.received.clear()
        node.up.consume(1, where, 100, transactional=False)
        net.run()
        found += node.received
    return found


def classes(found: list[UserMessage]) -> list[int]:
    return [one.properties.message_class for one in found]


def send(stores: Stores, identifier: int, **draft: object) -> None:
    asked = {"admin_queue": at("a", 5).name, "acknowledgments": 0xF}
    for number in range(COUNT):
        stores.net.send("a", at("c", identifier), body(number), recoverable=True, **asked | draft)


HEAD_IS_WHOLE: Final = ("a byte of the body", "another checksum", "final_ack", "expires_s")


@pytest.mark.parametrize("how", HURTS)
@pytest.mark.parametrize("which", [(0,), (5,), (COUNT - 1,), (1, 2, 9)])
def test_of_what_is_to_be_sent_the_others_arrive_and_a_dead_letter_tells_of_it(
    stores: Stores, how: str, which: tuple[int, ...]
) -> None:
    net = stores.net
    stores.close("b")
    send(stores, ORDERS_16, transactional=True)
    net.run()
    stores.close("a")
    rows = stores.hurt("a", QueueKind.SEQUENCE, how, *which)
    stores.start("a", "b")
    net.pass_ms(60_000)
    assert numbers(net.receive("c", "orders")) == [number for number in range(COUNT) if number not in which]
    a = net.nodes["a"]
    assert a.note_names().count("message-damaged") == a.up.status().damaged == len(which)
    assert stores.quarantine("a") == rows
    net.pass_ms(60_000)
    stores.close("a")
    assert stores.waiting("a").get("sequence", 0) == 0
    stores.start("a")
    assert a.up.status().damaged == 0
    letters = take(net, "a", DEADXACT)
    assert classes(letters) == [MessageClass.NACK_DELETED] * len(which)
    assert not any("arrived".encode("utf-16-le") in letter.properties.message_body for letter in letters)
    refused = [one for one in classes(take(net, "a", "admin")) if one & 0x8000]
    assert refused == [MessageClass.NACK_DELETED] * (len(which) if how in HEAD_IS_WHOLE else len(refused))
    stores.opens_whole("a")
    assert stores.quarantine("a") == rows


@pytest.mark.parametrize("how", HURTS)
@pytest.mark.parametrize("transactional", [True, False])
def test_on_its_way_a_transactional_one_is_repeated_and_another_is_lost_and_told_of(
    stores: Stores, how: str, transactional: bool
) -> None:
    net, where = stores.net, "orders" if transactional else "notes"
    stores.close("c")
    send(stores, ORDERS_16 if transactional else NOTES_17, transactional=transactional)
    net.pass_ms(10_000)
    stores.close("b")
    rows = stores.hurt("b", QueueKind.OUTGOING, how, 5)
    stores.start("b", "c")
    net.pass_ms(200_000)
    found = numbers(net.receive("c", where))
    assert found == [number for number in range(COUNT) if number != 5 or transactional]
    assert stores.quarantine("b") == rows
    assert net.nodes["b"].up.status().damaged == 1
    net.pass_ms(10_000)
    letters, told = take(net, "b", DEADLETTER), take(net, "a", "admin")
    refusals = [one for one in told if one.properties.message_class == MessageClass.NACK_DELETED]
    if not transactional:
        assert classes(letters) == [MessageClass.NACK_DELETED]
        assert len(refusals) <= 1
        assert not any(one.properties.message_body for one in refusals), "what is hurt is given to nobody"
    if how in HEAD_IS_WHOLE:
        assert len(letters) == len(refusals) == (not transactional)
    stores.opens_whole("b")


@pytest.mark.parametrize("how", HURTS)
def test_what_is_held_behind_a_gap_comes_again(stores: Stores, how: str) -> None:
    net = stores.net
    stores.close("c")
    send(stores, ORDERS_16, transactional=True)
    net.run()
    stores.close("b")
    stores.hurt("b", QueueKind.OUTGOING, "nothing left", 0)
    stores.start("b", "c")
    net.run()
    stores.close("c")
    assert stores.waiting("c") == {"held": COUNT - 1}
    rows = stores.hurt("c", QueueKind.HELD, how, 4)
    stores.start("c")
    assert stores.quarantine("c") == rows
    net.pass_ms(300_000)
    assert numbers(net.receive("c", "orders")) == [*range(COUNT)]
    assert net.nodes["c"].up.status().damaged == 1
    assert take(net, "c", DEADLETTER) == []
    stores.opens_whole("c")


@pytest.mark.parametrize("how", HURTS)
@pytest.mark.parametrize("which", [0, 6, COUNT - 1])
@pytest.mark.parametrize("transactional", [True, False])
def test_in_its_queue_one_is_lost_and_its_sender_hears_of_it(
    stores: Stores, how: str, which: int, transactional: bool
) -> None:
    net, where = stores.net, "orders" if transactional else "notes"
    asked = {"journal_negative": True, "final_ack": transactional}
    send(stores, ORDERS_16 if transactional else NOTES_17, transactional=transactional, **asked)
    net.pass_ms(10_000)
    stores.close("c")
    rows = stores.hurt("c", QueueKind.LOCAL, how, which)
    stores.start("c")
    net.pass_ms(10_000)
    assert numbers(net.receive("c", where)) == [number for number in range(COUNT) if number != which]
    assert stores.quarantine("c") == rows
    assert net.nodes["c"].up.status().damaged == 1
    net.pass_ms(10_000)
    assert MessageClass.NACK_Q_PURGED in classes(take(net, "c", DEADLETTER))
    refused = [one for one in classes(take(net, "a", "admin")) if one & 0x8000]
    if how in HEAD_IS_WHOLE:
        assert refused == [MessageClass.NACK_Q_PURGED]
        if transactional:
            assert final_acks(net, "b", "a").count(MessageClass.NACK_Q_PURGED) == 1
            assert classes(take(net, "a", DEADXACT)) == refused
    stores.opens_whole("c")


def test_the_letter_is_sent_to_nobody(stores: Stores) -> None:
    net = stores.net
    send(stores, ORDERS_16, transactional=True)
    net.pass_ms(10_000)
    stores.close("c")
    stores.hurt("c", QueueKind.LOCAL, "zeros", 3)
    stores.start("c")
    net.receive("c", "orders")
    core = net.nodes["c"].up
    assert core.send_back(DEADLETTER, None, net.now) == 0
    [letter] = kept(net, "c", DEADLETTER)
    # Nobody knows whose the hurt one was, so its number would name another message of this node.
    assert COUNT < letter.user.message_id < core.inspect().outbound.numbers.next_message_id()


def test_damaged_structure_still_ends_the_node(stores: Stores) -> None:
    send(stores, ORDERS_16, transactional=True)
    stores.net.pass_ms(10_000)
    stores.close("c")
    stores.rows("c", "DELETE FROM message WHERE key = (SELECT max(key) FROM message)")
    with pytest.raises(StoreError, match="has 11 messages, and had 12"):
        stores.open("c")


def test_a_kill_before_the_core_has_decided_leaves_one_row_in_the_quarantine(stores: Stores) -> None:
    net = stores.net
    send(stores, ORDERS_16, transactional=True)
    net.pass_ms(10_000)
    stores.close("c")
    rows = stores.hurt("c", QueueKind.LOCAL, "cut in the head", 2)
    for _ in range(2):
        stores.open("c")
        page = ReadPage(rows[0][0] >> POSITION_BITS, 0, 100, 2**30, ReadBy.WINDOW)
        found = net.nodes["c"].store.read(page)
        assert [isinstance(packet, HurtPacket) for _, packet, _ in found].index(True) == 2
        stores.close("c")
    stores.start("c")
    net.pass_ms(10_000)
    assert numbers(net.receive("c", "orders")) == [number for number in range(COUNT) if number != 2]
    assert stores.quarantine("c") == rows


def test_what_was_sent_and_is_not_acknowledged_may_have_arrived_and_goes_no_second_time(
    stores: Stores,
) -> None:
    net = stores.net
    send(stores, ORDERS_16, transactional=True)
    net.run()
    stores.close("a", "c")
    stores.hurt("a", QueueKind.SEQUENCE, "zeros", 3)
    stores.start("c")
    found = numbers(net.receive("c", "orders"))
    stores.start("a")
    net.pass_ms(300_000)
    found += numbers(net.receive("c", "orders"))
    assert [number for number in found if number != 3] == [number for number in range(COUNT) if number != 3]
    [letter] = take(net, "a", DEADXACT)
    assert ("may have arrived" in letter.properties.message_body.decode("utf-16-le")) == (3 in found)
    stores.close("a")
    assert stores.waiting("a").get("sequence", 0) == 0


@pytest.mark.parametrize("how", HURTS)
def test_what_waits_for_its_final_ack_stays_without_an_outcome(stores: Stores, how: str) -> None:
    net = stores.net
    send(stores, ORDERS_16, transactional=True, final_ack=True, journal_positive=True)
    net.pass_ms(60_000)
    stores.close("a")
    assert stores.waiting("a")["final"] == COUNT
    stores.hurt("a", QueueKind.FINAL, how, 3)
    stores.start("a")
    assert numbers(net.receive("c", "orders")) == [*range(COUNT)]
    net.pass_ms(60_000)
    bodies = [one.properties.message_body for one in take(net, "a", "system$;journal")]
    assert numbers(bodies) == [number for number in range(COUNT) if number != 3]
    stores.close("a")
    assert "final" not in stores.waiting("a")


def test_what_expires_is_let_go_though_one_of_it_is_hurt(stores: Stores) -> None:
    net = stores.net
    stores.close("b")
    send(stores, NOTES_17, time_to_reach_queue_s=60)
    net.run()
    stores.close("a")
    stores.hurt("a", QueueKind.OUTGOING, "zeros", 8, 9)
    stores.start("a")
    net.pass_ms(120_000)
    assert net.nodes["a"].up.status().expired == COUNT - 2
    stores.start("b")
    net.pass_ms(60_000)
    assert net.receive("c", "notes") == []
    assert net.nodes["a"].up.status().damaged == 2
    stores.close("a")
    assert "outgoing" not in stores.waiting("a")


def test_a_purge_goes_on_behind_one_that_is_hurt(stores: Stores) -> None:
    net = stores.net
    stores.close("b")
    send(stores, NOTES_17)
    net.run()
    stores.close("a")
    stores.hurt("a", QueueKind.OUTGOING, "zeros", 8, COUNT - 1)
    stores.start("a")
    net.nodes["a"].up.purge(net.nodes["a"].up.outgoing_names()[0])
    net.pass_ms(10_000)
    assert net.nodes["a"].up.status().outgoing[0].waiting == 0
    stores.opens_whole("a")
