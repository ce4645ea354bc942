"""The metrics that Prometheus reads from a running node, with an HTTP client and a parser written by others."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from mqproto.messages.drafts import Draft
from mqproto.simulator.base.program.extras import build
from mqproto.simulator.base.sockets import TCP_INFO
from mqproto.simulator.client import Client, connect
from mqproto.simulator.topology import Topology, parse
from mqproto.simulator.topology.file import written_address
from mqproto.simulator.topology.ports import reserved_address
from mqproto.simulator.topology.views import as_toml
from tests.simulator.running import Log, running, until_sent
from tests.simulator.typed import in_process, mqproto

TEXT: Final = """
[node.a]
[node.b]
metrics = "127.0.0.1:9180"
[node.b.queue.orders]
transactional = true
[node.b.queue."it's{q=1}"]
quota_kb = 1
[[link]]
between = ["a", "b"]
"""
KINDS: Final = {
    "queue_messages": "waiting",
    "queue_unsettled_messages": "unsettled",
    "queue_held_messages": "held",
    "queue_bytes": "size_bytes",
    "queue_quota_bytes": "quota_bytes",
    "queue_consumers": "consumers",
    "queue_messages_in_total": "entered",
    "queue_messages_out_total": "left",
}
OUTGOING: Final = {
    "outgoing_messages": "waiting",
    "outgoing_unsent_messages": "unsent",
    "outgoing_in_flight_messages": "in_flight",
    "outgoing_unread_messages": "unread",
    "outgoing_resend_attempts": "resend_attempt",
}
ALONE: Final = {
    "sessions": "sessions_open",
    "forwarded_messages_total": "forwarded",
    "expired_messages_total": "expired",
    "duplicate_messages_total": "duplicates",
    "resent_messages_total": "resent",
    "held_messages_total": "held_ever",
    "overflowed_messages_total": "overflowed",
    "store_bytes": "stored_bytes",
    "store_quota_bytes": "quota_bytes",
    "store_full": "disk_is_full",
    "store_commit_duration_seconds_count": "flushes",
    "arrival_age_seconds_count": "arrived",
    "arrival_age_seconds_sum": "ages_s",
}


def topology() -> Topology:
    return parse(TEXT, "scraped.toml").with_free_ports()


async def ask(node: Topology, path: str) -> httpx.Response:
    address = node.nodes["b"].metrics
    assert address is not None
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://{written_address(*address)}{path}")


def series(text: str, *labels: str) -> dict[str, Any]:
    """Return the values, keyed by metric, and then by the first of `labels` that the metric has, if any."""
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("mqproto_")
            label = next((sample.labels[label] for label in labels if label in sample.labels), None)
            if label is None:
                found[name] = sample.value
            else:
                found.setdefault(name, {})[label] = sample.value
    return found


async def traffic(sender: Client, receiver: Client) -> None:
    """Make messages arrive, be received, wait, and be refused."""
    await sender.send_many(r"b\orders", [Draft(body=b"x" * 100, transactional=True)] * 5)
    await sender.send_many(r"b\it's{q=1}", [Draft(body=b"y" * 400)] * 3)
    await until_sent(sender)
    assert len(await receiver.receive("orders", 2)) == 2
    with pytest.raises(ZeroDivisionError):
        async with receiver.transaction("orders"):
            raise ZeroDivisionError
    await until_sent(receiver)


@pytest.mark.long
async def test_what_prometheus_reads_is_what_queues_says(tmp_path: Path) -> None:
    nodes = topology()
    async with (
        running(nodes, "a", tmp_path),
        running(nodes, "b", tmp_path),
        connect(nodes, "a", tmp_path) as sender,
        connect(nodes, "b", tmp_path) as receiver,
    ):
        await traffic(sender, receiver)
        [sending] = (await sender.queues()).sessions
        [neighbour] = [peer for peer in (await sender.peers()).peers if peer.sessions]
        response = await ask(nodes, "/metrics")
        file = tmp_path / "scraped.toml"
        file.write_text(as_toml(nodes))
        arguments = ("queues", "--json", "--topology", file, "--directory", tmp_path)
        done = await trio.to_thread.run_sync(partial(mqproto, *arguments))
        assert [(await ask(nodes, path)).text for path in ("/live", "/ready")] == ["live\n", "ready\n"]
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert f'version="{build()}"' in response.text
    read = series(response.text, "queue", "cause", "host", "le", "kind", "node")
    [said] = [node for node in json.loads(done.out) if node["node"] == "b"]
    for name, key in KINDS.items():
        values = {queue["name"]: queue[key] for queue in said["local"] if queue[key] is not None}
        assert read[name] == values, name
    assert set(read["queue_messages"]) > {"orders", "it's{q=1}", "system$;deadxact"}
    assert read["queue_messages_out_total"]["orders"] == 2, "what was rolled back is there again"
    for name, key in (("queue_wait_seconds_count", "received"), ("queue_wait_seconds_sum", "waited_s")):
        values = {queue["name"]: queue[key] for queue in said["local"] if ";" not in queue["name"]}
        assert read[name] == values, name
    assert read["queue_wait_seconds_count"]["orders"] == 2, "what was rolled back has not been received"
    assert read["arrival_age_seconds_count"] == 6, "what was refused has not arrived"
    for name, key in OUTGOING.items():
        assert read[name] == {queue["name"]: queue[key] for queue in said["outgoing"]}, name
    for name, key in ALONE.items():
        assert read[name] == said[key], name
    refused = {cause: count for cause, count in read["refused_messages_total"].items() if count}
    assert refused == said["refusals"] == {"NACK_Q_EXCEED_QUOTA": said["refused"]}
    [session] = said["sessions"]
    assert read["session_window_messages"] == {session["host"]: session["window"]}
    assert read["session_unacknowledged_messages"] == {session["host"]: session["unacknowledged"]}
    assert 0 <= (sending.acknowledged_s or 0) == (neighbour.acknowledged_s or 0) < 60
    assert sending.acknowledged_s is not None, "the messages are there"
    for one in (sending.round_trip_s, neighbour.round_trip_s, session["round_trip_s"]):
        assert (one is None) == (TCP_INFO is None)
        assert one is None or 0 < one < 60
    for name in ("acknowledged_s", "round_trip_s"):
        values = read[f"session_{name}econds"]
        assert values.keys() == ({session["host"]} if session[name] is not None else set())
    within = read["store_commit_duration_seconds_bucket"]
    assert {float(bound): count for bound, count in within.items() if bound != "+Inf"} == dict(
        said["commits_within"]
    )
    assert read["store_room_bytes"] == min(said["quota_bytes"] - said["stored_bytes"], said["free_bytes"])
    ages = {queue["name"]: queue["oldest_s"] for queue in said["local"]}
    age_s = read["queue_oldest_message_age_seconds"]["orders"]
    assert 0 <= age_s <= said["utc_s"] - ages["orders"]
    assert read["queue_oldest_message_age_seconds"]["system$;journal"] == 0


async def test_a_node_with_metrics_ends_though_somebody_holds_a_connection(tmp_path: Path) -> None:
    nodes, log = topology(), Log()
    async with running(nodes, "b", tmp_path, log):
        address = nodes.nodes["b"].metrics
        assert address is not None
        stream = await trio.open_tcp_stream(*address)
        await stream.send_all(b"GET /metrics HTTP/1.1\r\n")
    assert log.lines("started")[0]["metrics"] == written_address(*address)
    assert log.lines("stopped")
    await stream.aclose()


def test_metrics_beyond_loopback_are_asked_for(tmp_path: Path) -> None:
    """A node that listens on an address of its own does not, by that alone, let others read its metrics."""
    node = ("node", "--name", "shop", "--address", written_address(*reserved_address()), "-d", tmp_path)
    done = in_process(*node, "--metrics", "0.0.0.0")
    assert done.status == 2
    assert done.complaint.startswith("0.0.0.0:9180 can be reached from outside: ")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    host, port = reserved_address()
    node = ("node", "--name", "shop", "--address", f"{host}:{port}", "-d", tmp_path)
    done = in_process(*node, "--metrics", f"{host}:{port}")
    assert done.status == 2
    assert done.complaint.startswith(f"{host}:{port} is taken by another program")
    assert done.complaint.endswith("name another with --metrics")


def test_without_the_library_metrics_are_refused_by_the_name_of_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    node = ("node", "--name", "shop", "--address", written_address(*reserved_address()), "-d", tmp_path)
    done = in_process(*node, "--metrics", "127.0.0.1")
    assert done.status == 2
    assert done.complaint == "metrics: prometheus_client is not installed: pip install 'mqproto[simulator]'"
