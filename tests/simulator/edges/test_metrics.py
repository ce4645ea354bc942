"""The metrics that Prometheus reads from a running gateway and trigger, with an HTTP client and a parser written by
others.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import httpx
import trio
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from mqproto.base.durations import Durations
from mqproto.simulator.edges.metrics.families import (
    Edge,
    GatewayFigures,
    TriggerFigures,
    of_gateway,
    of_trigger,
)
from mqproto.simulator.edges.trigger.judgment import TriggerEvent
from mqproto.simulator.topology import Topology, parse
from mqproto.simulator.topology.file import written_address
from mqproto.simulator.topology.ports import reserved_address
from tests.simulator.consumers import OK, HttpConsumer, Reply, Seen, business_error, listening
from tests.simulator.edges.trigger.test_run import ended, running_trigger
from tests.simulator.edges.trigger.test_trigger import TOPOLOGY, send
from tests.simulator.gateways import gateway, received
from tests.simulator.running import Log, running, running_with_client, until
from tests.simulator.typed import in_process

EDGE: Final = Edge("desk", "shop", "1")
GATEWAY: Final = GatewayFigures(
    messages={("orders", "accepted"): 3}, refused={"malformed": 1}, answered=Durations(),
    under_way=0, connections=1, turned_away=0, ended={"ACK_RECEIVE": 2}, told={"told": 1},
)  # fmt: skip
TRIGGER: Final = TriggerFigures(
    queue="orders", leads=True, epoch=1, is_connected=True, calls=0, answers={"processed": 2}, answered=Durations(),
    deliveries={"committed": 2}, held_s=0, failures=0, told={"told": 1},
)  # fmt: skip
"""Figures with every value that an edge can report."""


async def scraped(address: tuple[str, int]) -> dict[str, Metric]:
    """Return our metric families, keyed by their names in the tables."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(f"http://{written_address(*address)}/metrics")
    found = [*text_string_to_metric_families(answer.text)]
    names = {f"{each.name}_total" if each.type == "counter" else each.name: each for each in found}
    return {name: each for name, each in names.items() if name.startswith("mqproto_")}


async def ready(address: tuple[str, int]) -> tuple[int, str]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(f"http://{written_address(*address)}/ready")
    return answer.status_code, answer.text.strip()


def of(family: Metric) -> dict[str, float]:
    """Return the values of a family that are not 0, keyed by their labels."""
    return {
        " ".join(sample.labels.values()): sample.value
        for sample in family.samples
        if sample.value and not sample.name.endswith(("_created", "_bucket", "_sum"))
    }


def labels(told: Iterable[Metric]) -> dict[str, set[str]]:
    """Return the label names of each of our metrics, keyed by the metrics' names in the tables."""
    found = {f"{each.name}_total" if each.type == "counter" else each.name: each for each in told}
    ours = ((name, each) for name, each in found.items() if name.startswith("mqproto_"))
    return {name: {*each.samples[0].labels} - {"le"} for name, each in ours}


async def test_a_gateway_tells_what_it_did(topology: Topology, tmp_path: Path) -> None:
    address, log = reserved_address(), Log()
    async with running(topology, "destination", tmp_path, log) as node:
        told = ("shop.example",)
        async with gateway(
            topology, tmp_path, log, metrics="{}:{}".format(*address), callback_hosts=told
        ) as producer:
            for key in ("1", "1", "2"):
                await producer.post("/queues/orders/messages", content=b"x", headers={"Idempotency-Key": key})
            await producer.post("/queues/nothing/messages", content=b"x")
            assert (await producer.get("/%zz", headers={"Host": "a b"})).status_code in (400, 404)
            assert await ready(address) == (200, "ready")
            assert len(await received(topology, "destination", tmp_path, "orders")) == 2

            async def both_have_ended() -> bool:
                return node.posting.ends["ACK_RECEIVE"] == 2

            await until(both_have_ended)
            found = await scraped(address)
            assert labels(found.values()) == labels(of_gateway(EDGE, GATEWAY))
            assert of(found["mqproto_gateway_messages_total"]) == {
                r"accepted destination\orders": len(log.lines("accepted")),
                r"duplicate-dropped destination\orders": len(log.lines("duplicate-dropped")),
            }
            refused = of(found["mqproto_gateway_refused_requests_total"])
            assert refused["unknown-queue"] == 1
            assert sum(refused.values()) == 2
            assert of(found["mqproto_gateway_ended_messages_total"]) == {"ACK_RECEIVE": 2}
            assert of(found["mqproto_gateway_answer_duration_seconds"]) == {"": 3}
    assert log.lines("metrics")[0]["address"] == written_address(*address)


async def test_a_trigger_tells_what_became_of_messages(tmp_path: Path) -> None:
    file = tmp_path / "desk.toml"
    file.write_text(TOPOLOGY)
    address, consumer, done = reserved_address(), HttpConsumer(), trio.Event()
    replies = [Reply(500), OK, business_error("no")]

    async def in_turn(seen: Seen) -> Reply:
        reply = replies.pop(0)
        if not replies:
            done.set()
        return reply

    consumer.answering = in_turn
    topology = parse(TOPOLOGY, str(file)).with_free_ports()
    async with running_with_client(topology, "desk", tmp_path) as desk, listening(consumer):
        options = ("--url", consumer.url, "--interval", "0", "--hook", "http://127.0.0.1:9/")
        async with running_trigger(
            file, *options, "--metrics", written_address(*address), "--error-queue", r"desk\errors"
        ) as trigger:
            assert await ready(address) == (200, "ready")
            assert sum(of((await scraped(address))["mqproto_trigger_deliveries_total"]).values()) == 0
            await send(desk, b"one", b"two")
            await done.wait()
            found: dict[str, Metric] = {}

            async def both_are_done() -> bool:
                nonlocal found
                found = await scraped(address)
                return sum(of(found["mqproto_trigger_deliveries_total"]).values()) == 3

            await until(both_are_done)
            await ended(trigger, signal.SIGKILL)
    assert labels(found.values()) == labels(of_trigger(EDGE, TRIGGER))
    assert of(found["mqproto_trigger_deliveries_total"]) == {
        TriggerEvent.COMMITTED: 1,
        TriggerEvent.ROLLED_BACK: 1,
        TriggerEvent.DEAD_LETTERED: 1,
    }
    assert of(found["mqproto_trigger_answers_total"]) == {
        "processed": 1,
        "system-error": 1,
        "business-error": 1,
    }
    assert of(found["mqproto_trigger_answer_duration_seconds"]) == {"": 3}
    assert of(found["mqproto_trigger_leading"]) == of(found["mqproto_trigger_node_connected"]) == {"": 1}


def test_metrics_of_a_trigger_beyond_loopback_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "desk.toml"
    file.write_text(TOPOLOGY)
    typed = ("trigger", "orders", "-t", file, "--url", "http://127.0.0.1:9/", "-d", tmp_path)
    done = in_process(*typed, "--metrics", "0.0.0.0")
    assert done.status == 2
    assert done.complaint.startswith("0.0.0.0:9190 can be reached from outside: ")
