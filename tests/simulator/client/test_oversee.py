"""The overview of all nodes for an operator; the commands themselves are in test_running.py."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.manager.status import DuplicatesStatus, LocalStatus, NodeStatus
from mqproto.simulator.client import Client, NodeUnreachable, live, oversee
from mqproto.simulator.client.explain import Explainer
from mqproto.simulator.client.live import Away, ask_all
from mqproto.simulator.command import options
from mqproto.simulator.node.control import Explanation, QueueReceiver
from mqproto.simulator.topology import Topology, load
from mqproto.simulator.topology.places import Place
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.wire import guid_text
from tests.simulator.running import NodeProcess, running, running_with_client
from tests.simulator.statuses import EXPRESS, HELD, MESSAGE, NOW_MS, NOW_S, QUEUE, SEQUENCE, THREE


def status(**lists: object) -> NodeStatus:
    return NodeStatus(uptime_ms=NOW_MS, utc_s=NOW_S, **lists)  # type: ignore[arg-type]


def table(found: Mapping[str, NodeStatus | Away], capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return each printed row as a list of its cells, which are separated by two spaces in the output."""
    oversee.show_queues(THREE, found)
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def test_an_empty_world_has_a_small_table(capsys: pytest.CaptureFixture[str]) -> None:
    empty = replace(QUEUE, waiting=0)
    kept = [replace(empty, name=name) for name in ("system$;deadxact", "orders;journal")]
    acknowledgments = replace(EXPRESS, name=EXPRESS.name + ORDER_SUFFIX, waiting=0)
    told = status(local=[empty, *kept], outgoing=[acknowledgments])
    found: dict[str, NodeStatus | Away] = {"sender": Away(), "destination": told}
    assert table(found, capsys) == [
        ["queue", "waiting", "state"],
        ["sender", "not running"],
        [r"destination\orders", "0", "transactional"],
    ]


def test_what_was_dropped_as_a_duplicate_is_told_by_sender(capsys: pytest.CaptureFixture[str]) -> None:
    stranger = "00000000-0000-0000-0000-000000000009"
    known = guid_text(THREE.nodes["sender"].guid)
    dropped = [DuplicatesStatus(known, 1_200), DuplicatesStatus(stranger, 3)]
    rows = table({"destination": status(duplicates=1_203, duplicates_of=dropped), "sender": status()}, capsys)
    assert rows[1:] == [[f"destination has dropped 1,203 duplicates: 1,200 of sender, 3 of {stranger}"]]


def test_in_80_columns_the_reason_stands_below_what_waits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    oversee.show_queues(THREE, {"sender": status(outgoing=[SEQUENCE, EXPRESS], local=[QUEUE])})
    told = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in told)
    assert [line.split()[0] for line in told] == [
        "queue",
        r"sender\orders",
        "sender",
        "no",
        "sender",
        "connection",
    ]


def test_what_waits_has_a_reason_and_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    full = LocalStatus("notes", False, 3, 1, 0, size_bytes=900, quota_bytes=1_024)
    dead = LocalStatus("system$;deadxact", False, 1, 0, 0, size_bytes=9, quota_bytes=2**40)
    gap = replace(QUEUE, held=4)
    sequence = replace(SEQUENCE, resent=12)
    rows = table(
        {
            "sender": status(outgoing=[sequence, EXPRESS], local=[dead]),
            "destination": status(local=[full, gap], incoming=[HELD]),
        },
        capsys,
    )
    assert rows[0] == ["queue", "waiting", "unsettled", "held", "resent", "bytes", "state", "next hop", "why"]
    assert [r"sender\system$;deadxact", "1", "kept"] in rows
    assert [
        r"sender to destination\orders",
        "3",
        "12",
        "connected",
        "intermediate",
        "no OrderAck, next try in 18 s",
    ] in rows
    assert rows[3][-1] == "connection refused by 127.0.0.2:1801, next try in 4 s"
    assert [r"destination\notes", "3", "1", "900 of 1,024", "local"] in rows
    assert [r"destination\orders", "2", "4", "transactional"] in rows


def test_a_paused_queue_waits_for_nothing_but_its_operator(capsys: pytest.CaptureFixture[str]) -> None:
    [_, row] = table({"sender": status(outgoing=[replace(SEQUENCE, state="on hold")])}, capsys)
    assert row[-1] == "paused by an operator"


def test_values_of_queues_and_explanations_are_json() -> None:
    whole = status(outgoing=[SEQUENCE], local=[QUEUE], incoming=[HELD])
    [one, none, silent] = json.loads(
        json.dumps(oversee.queues_as_json(THREE, {"a": whole, "b": Away(), "c": Away(7)}))
    )
    assert (one["running"], one["outgoing"][0]["first_unacked"], one["incoming"][0]["missing"]) == (
        True,
        1,
        [3, 3],
    )
    assert one["outgoing"][0]["to"] == r"destination\orders"
    assert none == {"node": "b", "running": False}
    assert silent == {"node": "c", "running": None}
    explanation = Explanation(whole, [MESSAGE], [QueueReceiver("orders", 42, 1000, "ann", 5, 2, 9)], 3)
    [one, none] = json.loads(json.dumps(oversee.explanations_as_json(THREE, {"a": explanation, "b": Away()})))
    assert (one["messages"][0]["spot"], one["status"]["utc_s"]) == ("awaiting OrderAck", NOW_S)
    assert one["unlisted_receivers"] == 3
    assert one["receivers"] == [
        {
            "queue": "orders",
            "pid": 42,
            "uid": 1000,
            "user": "ann",
            "since_s": 5,
            "messages": 2,
            "given_s": 9,
            "program": "",
        }
    ]
    assert none == {"node": "b", "running": False}


@pytest.mark.parametrize(
    ("subject", "last"),
    [
        ("", "nothing waits anywhere"),
        ("orders", "nothing waits for orders"),
    ],
)
def test_where_there_is_nothing_to_explain_that_is_said(subject: str, last: str) -> None:
    [line] = oversee.explained(Explainer(THREE, str), subject, {"sender": Explanation(status(), [])})
    assert line.endswith(last)


# With nodes


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(load("three-node").with_free_ports(), tmp_path)


async def test_a_question_that_some_nodes_cannot_answer_is_answered_by_the_others(place: Place) -> None:
    async def refused_by_sender(client: Client) -> str:
        if client.node == "sender":
            raise FormatNameError("what, and what to do")
        return client.node

    topology = place.topology
    async with (
        running(topology, "sender", place.directory),
        running(topology, "intermediate", place.directory),
    ):
        assert await ask_all(place, refused_by_sender) == {
            "intermediate": "intermediate",
            "destination": Away(),
        }
        assert set(await oversee.explanations(place, None, "deadxact", 1)) == set(topology.nodes)
        with pytest.raises(UsageError, match="did you mean 'orders'"):
            await oversee.explanations(place, None, r"destination\order", 1)


async def test_a_node_that_hangs_is_there_and_the_others_are_not_kept_waiting(
    place: Place, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = NodeProcess(topology, "sender", place.directory)
    async with running(topology, "intermediate", place.directory):
        await hung.start()
        process = hung.process
        assert process is not None

        async def answer_or_hang(client: Client) -> str:
            if client.node == "sender":
                process.send_signal(signal.SIGSTOP)
                await client.queues()
            return client.node

        found = await ask_all(place, answer_or_hang)
        assert found == {
            "sender": Away(process.pid),
            "intermediate": "intermediate",
            "destination": Away(),
        }
        assert (await live.as_it_is(place)).silent == {"sender"}
        monkeypatch.setattr(live, "LOOK_S", 0.05)  # Nobody has to answer from here on.
        with pytest.raises(NodeUnreachable, match=rf"sender is there \(process {process.pid}\), and has not"):
            await ask_all(place, answer_or_hang, "sender")
    status, [complaint] = options.answered(place, await oversee.statuses(place))
    assert (status, f"sender is there (process {process.pid}), and has" in complaint) == (1, True)
    await hung.end(signal.SIGKILL)
    assert (await oversee.statuses(place))["sender"] == Away()


async def test_who_pauses_need_not_name_the_node_where_only_one_sends(
    place: Place, topology: Topology
) -> None:
    async with (
        running_with_client(topology, "sender", place.directory) as sender,
        running_with_client(topology, "intermediate", place.directory) as intermediate,
    ):
        await sender.send(r"destination\orders", b"", transactional=True)
        assert await oversee.hold(place, None, "orders", on_hold=True) == "sender"
        await intermediate.send(r"destination\orders", b"", transactional=True)
        with pytest.raises(
            UsageError, match="sender and intermediate send to orders: say which with --node sender"
        ):
            await oversee.hold(place, None, "orders", on_hold=False)
        assert await oversee.hold(place, "Intermediate", "orders", on_hold=True) == "intermediate"


@pytest.fixture
def topology(place: Place) -> Topology:
    return place.topology


async def test_more_dead_letters_than_a_node_has_in_memory_are_all_sent_back(
    place: Place, topology: Topology
) -> None:
    async with running_with_client(topology, "sender", place.directory) as sender:
        for _ in range(700):
            await sender.send(r"destination\orders", b"", transactional=True, journal_negative=True)
        await sender.purge(r"destination\orders")
        while (await oversee._waiting(sender, "system$;deadxact")) < 700:
            await sender.queues()
        assert await oversee.send_back(place, "sender", "deadxact", []) == (700, 0)
        assert await oversee._waiting(sender, "system$;deadxact") == 0
