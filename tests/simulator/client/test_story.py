"""The story of a message, told from logs with any content: in order, and with everything they have.

Parts that are missing from the logs are named.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st

from mqproto.edge.custody import End, end_of
from mqproto.simulator.client import connect, story
from mqproto.simulator.client.story import LINE_LIMIT_BYTES, logs_in, story_of, told
from mqproto.simulator.edges.operators.account import account_of
from mqproto.simulator.node.received import MessageId
from mqproto.simulator.rig.supervisor import supervised
from mqproto.simulator.topology import load
from mqproto.simulator.topology.places import Place
from tests.simulator.typed import in_process
from tests.test_readme import console_blocks

THREE = load("three-node")
FIRST, SECOND = (str(MessageId(THREE.nodes["sender"].guid, ordinal)) for ordinal in (1, 12))


def line(event: str, message: str = FIRST, at_s: float = 0, node: str = "sender", **facts: Any) -> bytes:
    """Return one line of a log."""
    time = f"2026-11-22T19:00:{at_s:09.6f}Z"
    said = {"node": node, "message": message, **facts, "event": event, "level": "info", "timestamp": time}
    if not message:
        del said["message"]
    return json.dumps(said).encode() + b"\n"


def a_log(folder: Path, lines: Iterable[bytes], name: str = "sender.log") -> Path:
    path = folder / name
    path.write_bytes(b"".join(lines))
    return path


def events(subject: str, *logs: Path) -> list[str]:
    return [step.event for step in story_of(subject, logs, THREE).steps]


def test_the_lines_of_several_logs_come_in_order_of_time(tmp_path: Path) -> None:
    """From "Keep the Logs Clean": "search the logs by the message ID and restore the whole history of the message"."""
    sender = a_log(
        tmp_path, [line("accepted", at_s=1), line("sent", at_s=2), line("final-acknowledged", at_s=9)]
    )
    other = a_log(
        tmp_path,
        [line("arrived", at_s=3, node="intermediate"), line("forwarded", at_s=4, node="intermediate")],
        "b.log",
    )
    assert events(FIRST, other, sender) == ["accepted", "sent", "arrived", "forwarded", "final-acknowledged"]


def test_another_message_is_another_story_even_if_its_name_begins_alike(tmp_path: Path) -> None:
    log = a_log(
        tmp_path, [line("accepted"), line("queued", SECOND), line("refused", key=FIRST, message=SECOND)]
    )
    assert events(FIRST, log) == ["accepted", "refused"]
    assert events(SECOND, log) == ["queued", "refused"]


def test_a_message_is_found_by_its_producers_key(tmp_path: Path) -> None:
    gateway = a_log(
        tmp_path,
        [
            line("accepted", node="sender gateway", key='order "17"', at_s=1),
            line("accepted", SECOND, node="sender gateway", key="order 18", at_s=1),
            line("refused", "", node="sender gateway", key='order "17"', at_s=8),
        ],
        "gateway.log",
    )
    sender = a_log(tmp_path, [line("accepted", at_s=0), line("accepted", SECOND), line("sent", at_s=2)])
    found = story_of('order "17"', [gateway, sender], THREE)
    assert found.messages == {FIRST}
    assert [(step.who, step.event) for step in found.steps] == [
        ("sender", "accepted"),
        ("sender gateway", "accepted"),
        ("sender", "sent"),
        ("sender gateway", "refused"),
    ]


def test_an_order_ack_that_names_numbers_only_belongs_to_the_messages_with_these(tmp_path: Path) -> None:
    def ack(first: int, last: int, sequence: str = "7/1", node: str = "sender") -> bytes:
        return line("order-acknowledged", "", 5, node, sequence=sequence, number=first, last_number=last)

    log = a_log(
        tmp_path,
        [
            ack(2, 4),
            ack(1, 1),
            ack(4, 9),
            ack(1, 9, "7/2"),
            ack(1, 9, node="intermediate"),
            line("sent", sequence="7/1", number=3),
        ],
    )
    assert [step.facts["number"] for step in story_of(FIRST, [log], THREE).steps] == [3, 2]


SPOILT = st.one_of(
    st.binary(max_size=200).filter(lambda data: b"\n" not in data),
    st.sampled_from(
        [
            b"mqproto: error: the disk is full",
            line("sent")[:40],
            b"{}",
            b'{"message": ' + json.dumps(FIRST).encode() + b"}",
            b'{"message": ' + json.dumps(FIRST).encode() + b', "timestamp": 3, "node": "x", "event": "y"}',
            b"{" + json.dumps(FIRST).encode() + b"[" * 5_000 + b"}",
            line("sent", body="x" * LINE_LIMIT_BYTES)[:-1],
        ]
    ),
)


@given(spoilt=st.lists(SPOILT, max_size=6), cut=st.integers(0, 30))
def test_what_is_no_line_of_a_log_is_skipped(
    tmp_path_factory: pytest.TempPathFactory, spoilt: list[bytes], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    good = [line("accepted"), line("stored"), line("sent")]
    mixed = [
        part
        for one in zip(good, [b"".join(b + b"\n" for b in spoilt), b"", b""], strict=True)
        for part in one
    ]
    last = line("session-acknowledged")[: -1 - cut]
    assert events(FIRST, a_log(folder, [*mixed, last])) == ["accepted", "stored", "sent"]


def test_the_lines_that_are_skipped_are_counted(tmp_path: Path) -> None:
    garbage = [b"no line\n", b'{"message": ' + json.dumps(FIRST).encode() + b"}\n", b"x" * 200_000 + b"\n"]
    found = story_of(FIRST, [a_log(tmp_path, [*garbage, line("sent"), b'{"cut'])], THREE)
    assert found.spoilt == 4
    assert "4 lines in the logs are none of a log, or cut off; they were skipped" in told(found, THREE)


def test_rotated_logs_are_read_compressed_or_not(tmp_path: Path) -> None:
    a_log(tmp_path, [line("sent", at_s=3)])
    a_log(tmp_path, [line("stored", at_s=2)], "sender.log.1")
    a_log(tmp_path, [gzip.compress(line("accepted", at_s=1))], "sender.log.2.gz")
    a_log(tmp_path, [line("accepted", at_s=1)], "notes.txt")
    assert events(FIRST, *logs_in(tmp_path)) == ["accepted", "stored", "sent"]


def test_a_compressed_log_that_is_cut_off_or_is_none_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    data = gzip.compress(
        line("accepted") * 1_000 + b"".join(line("sent", SECOND, n / 1_000) for n in range(5_000))
    )
    cut = a_log(tmp_path, [data[: len(data) // 2]], "a.log.gz")
    none = a_log(tmp_path, [b"not compressed"], "b.log.gz")
    found = story_of(FIRST, [cut, none], THREE)
    assert len(found.steps) == 1_000
    assert found.spoilt >= 2


def test_a_story_has_an_end_however_much_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "STEPS_LIMIT", 10)
    log = a_log(tmp_path, [line("resent", at_s=number) for number in range(30)])
    found = story_of(FIRST, [log], THREE)
    assert (len(found.steps), found.left_out) == (10, 20)
    assert "20 steps more are not shown" in told(found, THREE)


def test_where_lines_are_missing_it_is_said(tmp_path: Path) -> None:
    log = a_log(tmp_path, [line("accepted", at_s=1), line("session-acknowledged", at_s=2)])
    lines = list(told(story_of(FIRST, [log], THREE), THREE))
    assert [re.sub(" +", " ", text) for text in lines] == [
        "2026-11-22 19:00:01.000000 sender accepted",
        " sender (lines of the log are missing here)",
        "2026-11-22 19:00:02.000000 sender session-acknowledged",
    ]


def test_a_trigger_and_a_gateway_have_paths_of_their_own(tmp_path: Path) -> None:
    edges = [
        line("accepted", node="sender gateway", key="k"),
        line("duplicate-dropped", node="sender gateway", key="k"),
    ]
    calls = [line(event, node="trigger") for event in ("attempted", "rolled-back", "attempted", "committed")]
    assert not story_of(FIRST, [a_log(tmp_path, [*edges, *calls])], THREE).missing()


def test_whoever_deleted_what_was_in_a_queue_is_named_in_the_story(tmp_path: Path) -> None:
    def order(at_s: float, operation: str, queue: str, **who: Any) -> bytes:
        facts = {"operation": operation, "queue": queue, "messages": 3, "pid": 17, "uid": 1000, **who}
        return line("operated", "", at_s, node="destination", **facts)

    log = a_log(
        tmp_path,
        [
            order(1, "purge", "orders", user="too early"),
            line("queued", at_s=2, node="destination", queue="orders"),
            order(3, "purge", "notes", user="elsewhere"),
            order(4, "send", "orders", user="a sender"),
            order(5, "purge", "orders", user="ann"),
            line("purged", at_s=6, node="destination", queue="orders"),
            order(7, "purge", "orders", user="too late"),
        ],
    )
    assert events(FIRST, log) == ["queued", "operated", "purged"]
    words = "\n".join(told(story_of(FIRST, [log], THREE), THREE))
    assert "destination  operated: orders, purge of 3 messages, by ann (process 17)\n" in words


def test_a_step_is_told_in_words(tmp_path: Path) -> None:
    destination = THREE.nodes["destination"]
    format_name = str(destination.format_name(destination.queue("orders")))
    facts: dict[str, Any] = {"queue": "orders", "attempt": 2, "reason": "HTTP 500", "next_try_s": 4}
    log = a_log(
        tmp_path,
        [
            line("accepted", queue=format_name, sequence="7/1", number=3),
            line("arrived", node="intermediate", session=1, peer="127.0.0.1"),
            line("delivered", node="destination", queue="orders", consumer=1, delivery_count=-1),
            line("rolled-back", node="destination trigger", **facts),
        ],
    )
    words = "\n".join(told(story_of(FIRST, [log], THREE), THREE))
    assert r"accepted: destination\orders, number 3" in words
    assert "arrived: from sender" in words
    assert "delivered: orders, delivery count not known" in words
    assert "rolled-back: orders, attempt 2, HTTP 500, next try in 4 s" in words


@pytest.mark.usefixtures("forked_programs")
async def test_the_story_of_a_real_message_is_what_the_readme_shows_though_a_node_was_killed(
    tmp_path: Path,
) -> None:
    """From "Keep the Logs Clean": "log the important waypoints for each message id"."""
    [[command]] = console_blocks("story-of-a-message")
    shown = {text.partition("  ")[2] for text in (command.output or "").splitlines()}
    topology = load("three-node").with_free_ports().with_waypoints()
    async with supervised(topology, tmp_path) as nodes:
        await nodes.kill("destination")
        async with connect(topology, "sender", tmp_path) as client:
            message = str(await client.send(r"destination\orders", b"hello", transactional=True))
        await nodes.start("destination")
        async with connect(topology, "destination", tmp_path) as client:
            with suppress(KeyError):
                async with client.transaction("orders", timeout_s=20) as [_]:
                    raise KeyError
            async with client.transaction("orders", timeout_s=20) as [_]:
                pass
        missing = shown
        with trio.move_on_after(20):
            while missing:  # The last acknowledgments may be under way still.
                await trio.sleep(0.05)
                found = story_of(message, logs_in(tmp_path), topology)
                missing = shown - {text.partition("  ")[2] for text in told(found, topology)}
        assert not missing
        account = await account_of(Place(topology, tmp_path), message)
    assert found.has_waypoints
    assert not found.missing()
    assert [set(one) for one in account.now] == [set(topology.nodes)]
    assert [(end_of(one), one.queue) for one in account.known] == [(End.RECEIVED, r"destination\orders")]


# The command


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a topology whose nodes are not running."""
    monkeypatch.setenv("MQPROTO_DIRECTORY", str(tmp_path))
    return tmp_path


def test_the_command_tells_what_the_logs_have_and_who_is_not_running(typed: Path) -> None:
    a_log(typed, [line("accepted"), line("sent", session=1, peer="127.0.0.2")])
    done = in_process("history", FIRST)
    assert done.status == 0
    assert done.out.splitlines()[1].endswith("sent: to intermediate")
    assert done.out.splitlines()[2:] == [
        "now:",
        f"nobody has {FIRST}: it was received, or it ended and no dead letter was asked for",
        "sender, intermediate, destination are not here: what lies there is not known",
    ]


def test_a_message_that_nobody_knows_is_a_finding_and_how_to_get_waypoints_is_said(typed: Path) -> None:
    done = in_process("history", FIRST)
    assert done.status == 1
    assert done.err.splitlines() == [
        f"mqproto: no log in {typed} has waypoints; nodes write them after `mqproto run --waypoints`",
        f"mqproto: nobody knows {FIRST}: none of 0 logs, and no running node",
    ]


def test_other_logs_can_be_named_and_programs_get_everything(typed: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    log = a_log(elsewhere, [line("accepted", node="sender gateway", key="order 17")], "gateway.txt")
    done = in_process("history", "order 17", "--log", log, "--json")
    assert done.status == 0
    said = json.loads(done.out)
    assert said["messages"] == [FIRST]
    assert said["steps"][0]["key"] == "order 17"
    assert {one["node"]: one["running"] for one in said["now"][0]} == dict.fromkeys(THREE.nodes, False)
