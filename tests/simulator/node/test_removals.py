"""Whoever takes a failed message from its queue, the log has the message before the store forgets it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mqproto.simulator.client import Client, MessageId
from mqproto.simulator.client.envelope import FailureNote
from mqproto.simulator.edges.trigger.errorcopy import copy_for
from mqproto.simulator.node.removals import removed
from mqproto.simulator.storage import Store
from mqproto.simulator.topology import Topology, parse
from mqproto.turn.effects import Departure, Writes
from mqproto.wire import Guid, MessageClass, encode_packet, user_message
from tests.simulator.running import running_with_client, until

DESK = """
[node.desk]
[node.desk.queue.orders]
transactional = true
[node.desk.queue.errors]
transactional = true
"""


@pytest.fixture
def topology() -> Topology:
    return parse(DESK, "desk.toml").with_free_ports()


@pytest.fixture
async def desk(topology: Topology, tmp_path: Path) -> AsyncIterator[Client]:
    async with running_with_client(topology, "desk", tmp_path) as client:
        yield client


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "desk.removals.log"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


async def failed(desk: Client, body: bytes) -> MessageId:
    """Put a message into the error queue as a trigger would; return the identifier that it had before."""
    await desk.send("orders", body, transactional=True)
    async with desk.transaction("orders") as taken:
        note = FailureNote(failure="business error", message=str(taken[0].id), queue=r"desk\orders")
        taken.send("errors", copy_for(taken[0], note))
    return taken[0].id


async def dead_letter(desk: Client, body: bytes) -> MessageId:
    sent = await desk.send("orders", body, transactional=True, journal_negative=True)
    await desk.purge("orders")

    async def is_there() -> bool:
        return any(letter.id == sent for letter in await desk.peek("deadxact", 9))

    await until(is_there)
    return sent


async def test_whatever_takes_a_copy_away_is_named_and_other_messages_are_not(
    desk: Client, tmp_path: Path
) -> None:
    await desk.send("orders", b'{"failure":"is not a copy"}', transactional=True)
    await desk.receive("orders")
    names = [await failed(desk, body) for body in (b"received", b"purged", b"deleted")]
    assert lines(tmp_path) == []
    [received] = await desk.receive("errors")
    await desk.purge("errors")
    said = lines(tmp_path)
    assert [(line["message"], line["queue"], line["class"]) for line in said] == [
        (str(names[0]), "errors", "ACK_RECEIVE"),
        (str(names[1]), "errors", "NACK_Q_PURGED"),
        (str(names[2]), "errors", "NACK_Q_PURGED"),
    ]
    assert said[0]["copy"] == str(received.id)
    last = await failed(desk, b"with its queue")
    await desk.delete("errors")
    assert lines(tmp_path)[-1] | {"message": str(last), "class": "NACK_Q_DELETED"} == lines(tmp_path)[-1]


async def test_dead_letters_are_named_and_one_that_was_sent_back_has_its_new_name(
    desk: Client, tmp_path: Path
) -> None:
    names = [await dead_letter(desk, body) for body in (b"received", b"returned", b"purged")]
    await desk.receive("deadxact")
    await desk.send_back("deadxact", [names[1]])
    [again] = await desk.receive("orders")
    await desk.purge("deadxact")
    said = [(line["message"], line["class"], line.get("again")) for line in lines(tmp_path)]
    assert said == [
        (str(names[0]), "ACK_RECEIVE", None),
        (str(names[1]), "RETURNED", str(again.id)),
        (str(names[2]), "NACK_Q_PURGED", None),
    ]


async def test_a_dead_letter_in_its_applications_queue_is_named_as_well(desk: Client, tmp_path: Path) -> None:
    for body in (b"received", b"purged"):
        await desk.send("orders", body, transactional=True, dead_letter_queue="errors")
    await desk.purge("orders")

    async def are_there() -> bool:
        return len(await desk.peek("errors", 9)) == 2

    await until(are_there)
    [taken] = await desk.receive("errors")
    await desk.purge("errors")
    said = [(line["queue"], line["class"]) for line in lines(tmp_path)]
    assert said == [("errors", "ACK_RECEIVE"), ("errors", "NACK_Q_PURGED")]
    assert lines(tmp_path)[0]["message"] == str(taken.id)


async def test_the_line_is_on_disk_before_the_store_forgets(
    desk: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    commit = Store.commit

    def committed(store: Store, writes: Writes) -> None:
        if any(departure.queue == "errors" for departure in writes.departures):
            seen.append(len(lines(tmp_path)))
        commit(store, writes)

    monkeypatch.setattr(Store, "commit", committed)
    await failed(desk, b"one")
    await desk.receive("errors")
    assert seen == [1]


async def test_a_disk_that_takes_no_line_holds_nobody_up(desk: Client, tmp_path: Path) -> None:
    await failed(desk, b"one")
    (tmp_path / "desk.removals.log").mkdir()
    assert len(await desk.receive("errors")) == 1


@pytest.mark.parametrize(
    ("extension", "correlation", "counts"),
    [
        (b'{"failure":"business error"}', bytes(16) + b"\1\0\0\0", True),
        (b'{"failure":"business error"}', bytes(20), False),
        (b'{"envelope":1,"failure":"is a word"}', bytes(16) + b"\1\0\0\0", False),
    ],
)
def test_a_copy_is_known_by_how_it_begins_and_by_what_it_is_about(
    extension: bytes, correlation: bytes, counts: bool
) -> None:
    message = user_message(
        source=Guid(bytes(16)),
        destination_manager=Guid(bytes(16)),
        destination=1,
        message_id=7,
        sent_time_s=0,
        body=b'{"failure":"',
        extension=extension,
        correlation_id=correlation,
    )
    departure = Departure("errors", MessageClass.ACK_RECEIVE, [encode_packet(message)])
    assert len(list(removed([departure]))) == counts
