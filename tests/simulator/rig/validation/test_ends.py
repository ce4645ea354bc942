"""An audit names each way in which a message can end, and reports a message as missing if the record of that end is
lost.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mqproto.edge.custody import End, end_of
from mqproto.simulator.client import MessageId, ReceivedMessage
from mqproto.simulator.edges.history.history import open_history
from mqproto.simulator.edges.operators.reading import Audit, audited
from mqproto.simulator.edges.trail import Trail, trail_of
from mqproto.simulator.rig.validation.ends.lists import HOLDERS, Holder, Lists, Sent
from mqproto.simulator.rig.validation.ends.report import EndsReport
from mqproto.simulator.rig.validation.ends.running import run_ends
from mqproto.simulator.rig.validation.ends.system import System
from mqproto.simulator.rig.validation.ends.ways import WAYS, EndWay
from mqproto.simulator.rig.verdict import RunOracle
from mqproto.simulator.storage.care import salvaged
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.storage.posted import COLUMNS, PostedTable, made_posted
from mqproto.simulator.topology import places
from mqproto.simulator.topology.places import Place
from mqproto.turn.effects import POSITION_BITS, PostedRow
from tests.simulator.typed import in_process

pytestmark = pytest.mark.usefixtures("forked_programs")

AT_LEAST: Final = 25
"""The number of ways to end that the requirements ask for."""
IN_STORES: Final = frozenset(
    {
        End.IN_ITS_QUEUE,
        End.ON_ITS_WAY,
        End.BEING_PROCESSED,
        End.DEAD_LETTER,
        End.LETTER_IN_DOUBT,
        End.IN_ERROR_QUEUE,
        End.IN_IN_DOUBT_QUEUE,
    }
)
ROOM: Final = ("*-reserve", "*-wal-room", "*.life", "*-lock")
named_ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
IN_SOME_STORE: Final = [way for way in WAYS if way.end is not End.HEARD_ELSEWHERE]
"""All ways to end that are recorded in some store.

This excludes an end that is reported only to the producer's own administration queue.
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> EndsReport:
    """The report after messages have ended in all ways and nothing runs any more."""
    return trio.run(run_ends, tmp_path_factory.mktemp("ends"))


@pytest.fixture(scope="module")
def place(report: EndsReport, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A copy of the stores and logs that the report is about."""
    folder = tmp_path_factory.mktemp("copy") / "ends"
    shutil.copytree(report.place.directory, folder, ignore=shutil.ignore_patterns(*ROOM))
    with closing(sqlite3.connect(folder / "history.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return Place(report.place.topology, folder)


@pytest.fixture(scope="module")
def stopped(place: Place) -> Audit:
    return audited(place)


@pytest.mark.long
def test_each_way_ends_as_it_should_and_all_lists_agree(report: EndsReport) -> None:
    assert report.broken == []
    assert len(WAYS) >= AT_LEAST
    ends = report.audit.counted()
    assert len(report.lists.answered) == sum(map(len, ends.values()))
    assert ends[End.UNACCOUNTED] == []


def test_the_stores_say_the_same_when_nobody_runs(report: EndsReport, stopped: Audit) -> None:
    assert list(report.lists.differences(stopped.answered)) == []
    assert stopped.counted() == report.audit.counted()


@pytest.mark.long
@pytest.mark.parametrize("way", IN_SOME_STORE, ids=lambda way: way.name)
def test_what_is_lost_where_it_was_is_missed_and_nothing_else_is(
    report: EndsReport, place: Place, way: EndWay
) -> None:
    message = message_of(report, way)
    names = report.audit.answered[message].names
    with lost(place.directory, way, names, report.lists.answered[message].key):
        after = audited(place)
    assert named(report.lists, after) == [message]
    assert end_of(after.answered[message]) is End.UNACCOUNTED
    assert after.unknown.not_whole == []


FAILED: Final = frozenset({End.IN_ERROR_QUEUE, End.IN_IN_DOUBT_QUEUE, End.DEAD_LETTER, End.LETTER_IN_DOUBT})
"""The ends that leave work for the desk."""
LIFE: Final = ("state", "message", "message_class", "attempts", "reason")
"""The fields reported for each life of a message."""


@pytest.fixture(scope="module")
def told(place: Place) -> dict[str, dict[str, dict[str, Any]]]:
    """Return where each message is according to each command, keyed by command and message."""
    typed = ("-t", place.directory / "sender.seen.toml", "--directory", place.directory, "--json")
    audit = json.loads(in_process("audit", "--each", *typed).out)
    listed = json.loads(in_process("failed", "list", *typed).out)
    return {
        "audit": {one["message"]: one for one in audit["messages"]},
        "failed": {one["key"] or one["message"]: one for one in listed["failed"]},
    }


@pytest.mark.long
@named_ways
def test_whoever_is_asked_tells_the_same_of_it(
    report: EndsReport, place: Place, told: dict[str, dict[str, dict[str, Any]]], way: EndWay
) -> None:
    message = message_of(report, way)
    sent = report.lists.answered[message]
    typed = ("-t", place.directory / "sender.seen.toml", "--directory", place.directory, "--json")
    audit = told["audit"][message]
    assert (audit["end"], audit["reason"]) == (way.end, way.reason)
    # Most have the name of a queue, which `explain` takes for that.
    is_queue = sent.key in place.topology.nodes["destination"].queues
    for command, name in (
        ("history", sent.key),
        ("explain", "" if is_queue else sent.key),
        ("explain", message),
    ):
        if name:
            [said] = json.loads(in_process(command, name, *typed).out)["whereabouts"]
            assert said == audit, command
    failed = told["failed"].get(sent.key or message)
    assert (failed is not None) == (way.end in FAILED)
    if failed is not None:
        named = {name: failed[name] for name in ("queue", "key", "end")}
        assert named == {name: audit[name] for name in named}
        assert (failed["message"], failed["lies_in"]) == (audit["lives"][-1]["message"], audit["owner"])
    if sent.key:
        trail = trio.run(trail_in, place, message)
        lives = [{name: getattr(life, name) for name in LIFE} for life in (*trail.before, trail)]
        assert lives == [{name: life[name] for name in LIFE} for life in audit["lives"]]
        assert trail.state == audit["state"]


async def trail_in(place: Place, message: str) -> Trail:
    """Return what GET would show about a message."""
    rows = dict[str, PostedRow]()
    for name, node in place.topology.nodes.items():
        path = places.store_path(place.directory, name)
        with closing(salvaged(SYSTEM_FILES, path)) as store:
            for row in store.posted():
                rows[str(MessageId(node.guid, row.message_id)) if row.queue or not row.key else row.key] = row
    async with open_history(places.history_url(place.directory)) as history:
        return await trail_of(rows[message], message, history.look, rows.get)


@named_ways
def test_what_its_holder_has_lost_is_missed_and_nothing_else_is(
    report: EndsReport, stopped: Audit, way: EndWay
) -> None:
    message = message_of(report, way)
    text = report.lists.answered[message].text
    others = {name: holder for name, holder in report.lists.has.items() if name != text}
    if way.end in IN_STORES:  # Somebody has it who should not.
        others[text] = Holder.CONSUMER
    lists = Lists(report.lists.answered, others)
    assert named(lists, stopped) == [message]


@named_ways
def test_what_only_its_consumer_or_its_producer_knows_of_is_missed(
    report: EndsReport, stopped: Audit, way: EndWay
) -> None:
    """One message has an answer that the audit does not know of; another has an answer that was never given."""
    message = message_of(report, way)
    answered = dict(report.lists.answered)
    sent = answered.pop(message)
    assert named(Lists(answered, report.lists.has), stopped) == [message]
    lists = Lists({**report.lists.answered, "nobody's": sent._replace(way="none")}, report.lists.has)
    assert named(lists, report.audit) == ["nobody's"]


def test_what_comes_twice_or_altered_is_found(tmp_path: Path) -> None:
    system = System({}, {}, tmp_path)
    system.lists.answered["1"] = Sent("way", "queue", "way", "way")
    system.has(Holder.PROGRAM, b"way  ")
    system.has(Holder.PRODUCER, b"way")
    assert system.lists.found() == {RunOracle.DOUBLED: [], RunOracle.ALTERED: []}
    system.consumer.reached["way"] = b"way"
    system.has(Holder.PROGRAM, b"wax")
    system.end()
    assert system.lists.found() == {
        RunOracle.DOUBLED: ["way came to the producer, whose own queue was told, and then to the consumer"],
        RunOracle.ALTERED: ["a program that receives has 'wax', which nobody sent"],
    }


def message_of(report: EndsReport, way: EndWay) -> str:
    return [message for message, sent in report.lists.answered.items() if sent.way == way.name][-1]


def named(lists: Lists, audit: Audit) -> list[str]:
    """Return the messages about which anything is reported."""
    return [line.partition(" ")[0] for line in lists.differences(audit.answered)]


# A loss


@contextmanager
def lost(folder: Path, way: EndWay, names: Collection[str], key: str) -> Iterator[None]:
    """Remove, behind the system's back, the data that shows where a message is; restore it at the end."""
    files = [path for path in folder.iterdir() if path.suffix in (".sqlite", ".log")]
    kept = {path: path.read_bytes() for path in files}
    if way.end in IN_STORES:
        for path in folder.glob("*.sqlite"):
            if path.stem != "history":
                lose_packets(path, names)
    else:
        forget(folder / "history.sqlite", names, key)
        for path in folder.glob("*.log"):
            lose_lines(path, names, key)
        for path in folder.glob("*.sqlite"):
            if path.stem != "history":
                lose_ends(path, names)
    yield
    for path, data in kept.items():
        path.write_bytes(data)


def lose_packets(store: Path, names: Collection[str]) -> None:
    """Delete a message's rows, or those of its copy; the tables' counts then say that nothing is missing.

    The copy that the sender keeps until the FinalAck stays: it does not mean that the sender still has the message.
    """
    owned = (
        "SELECT key, message.checksum, final_ack, packet FROM message JOIN queue ON queue = key >> ? "
        "WHERE kind <> 'final'"
    )
    with closing(sqlite3.connect(store)) as db, db:
        for key, checksum, final_ack, packet in db.execute(owned, (POSITION_BITS,)).fetchall():
            message = ReceivedMessage(packet)
            if not {str(message.id), str(message.correlation)}.isdisjoint(names):
                db.execute("DELETE FROM message WHERE key = ?", (key,))
                db.execute(
                    "UPDATE queue SET message_count = message_count - 1, size_bytes = size_bytes - ?, "
                    "message_checksums = message_checksums - ?, final_ack_count = final_ack_count - ? WHERE queue = ?",
                    (len(packet), checksum, final_ack, key >> POSITION_BITS),
                )


def lose_ends(store: Path, names: Collection[str]) -> None:
    """Take the ends of a message out of the rows, in each of its lives."""
    with closing(sqlite3.connect(store)) as db, db:
        db.execute(
            "PRAGMA recursive_triggers = ON"
        )  # A row that is replaced leaves its table's sum, as in a node.
        for *columns, _ in db.execute(f"SELECT {COLUMNS} FROM posted").fetchall():
            row = made_posted(*columns)
            if not {row.key, *(name for name in names if name.endswith(f"\\{row.message_id}"))}.isdisjoint(
                names
            ):
                PostedTable(db).put([row._replace(message_class=0, ended_s=0)], [])


def forget(history: Path, names: Collection[str], key: str) -> None:
    """Delete everything about a message except that it was accepted."""
    with closing(sqlite3.connect(history)) as db, db:
        for name in {*names, key}:
            db.execute(
                "DELETE FROM document_history WHERE key = ? AND scope NOT LIKE 'gateway/%' AND ? <> ''",
                (name, name),
            )


def lose_lines(log: Path, names: Collection[str], key: str) -> None:
    """Delete the lines of a log that tell of a message."""
    lines = log.read_text("utf-8").splitlines(keepends=True)
    log.write_text("".join(line for line in lines if not tells(line, names, key)), "utf-8")


def tells(line: str, names: Collection[str], key: str) -> bool:
    said = json.loads(line)
    is_about = said.get("message") in names or (key != "" and said.get("key") == key)
    return said["event"] != "accepted" and is_about


def test_each_end_but_those_of_what_nobody_has_is_on_somebodys_list_or_in_a_store() -> None:
    assert set(End) == IN_STORES | set(HOLDERS) | {End.UNACCOUNTED, End.FORGOTTEN}
