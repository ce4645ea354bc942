"""The metrics of a status: whatever names the status contains, the metrics can be read, and their number is limited."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import hypothesis.strategies as st
from hypothesis import given
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from trio import to_thread

from mqproto.manager.status import QUEUES_LISTED, SESSIONS_LISTED, LocalStatus, NodeStatus, OutgoingStatus
from mqproto.neighbours.peerstatus import SessionStatus
from mqproto.simulator.base.http.framing import RequestHead
from mqproto.simulator.base.http.monitoring import Monitored, Monitoring
from mqproto.simulator.base.http.server import Request
from mqproto.simulator.edges.metrics.families import of_gateway, of_trigger
from mqproto.simulator.node.metrics.families import LOCAL_LISTED, PIECE, Facts, families, room_bytes
from tests.conformance import ROOT
from tests.programs import needs
from tests.simulator.edges.test_metrics import EDGE, GATEWAY, TRIGGER, labels

FOLDER: Final = ROOT / "simulator/node/metrics"
FACTS: Final = Facts("a", "GUID", "1")
ALERTS: Final = FOLDER / "alerts.yml"
NAME: Final = re.compile(r"\bmqproto_[a-z_]+")
WHOLE: Final = NodeStatus(
    local=[
        LocalStatus(
            "orders",
            True,
            2,
            1,
            3,
            100,
            1_000,
            4,
            entered=5,
            left=3,
            oldest_s=90,
            received=3,
            waited_s=7.5,
            waited_within=[(0.5, 1), (5.0, 2)],
        )
    ],
    outgoing=[OutgoingStatus("x", True, 3, "h", "connected", "", 0, 7, None, resend_attempt=2)],
    sessions=[SessionStatus("127.0.0.2", "GUID", 64, 3, 1, 0.012, 0.000_4)],
    refusals={"NACK_ACCESS_DENIED": 6},
    utc_s=100,
    flushes=3,
    commits_s=0.5,
    commits_within=[(0.1, 2), (1.0, 3)],
    arrived=5,
    ages_s=70.0,
    ages_within=[(1.0, 4), (60.0, 4)],
    stored_bytes=400,
    quota_bytes=1_000,
    free_bytes=500,
)


class Registry(Collector):
    def __init__(self, status: NodeStatus, facts: Facts) -> None:
        self._said = status, facts

    def collect(self) -> Any:
        return families(*self._said)


def told(status: NodeStatus, facts: Facts = FACTS) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the values that Prometheus reads, keyed by name and labels."""
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for family in parsed(generate_latest(Registry(status, facts))):
        for sample in family.samples:
            key = sample.name, tuple(sample.labels.values())
            assert key not in found, f"Prometheus refuses a scrape with {key} in it twice"
            found[key] = sample.value
    return found


def parsed(text: bytes) -> list[Metric]:
    return [*text_string_to_metric_families(text.decode())]


names = st.text(max_size=8) | st.sampled_from(['a"b\\c\nd', "\ud800", "x" * 300, "x" * 299 + "y", "\u202e"])


@given(locals_=st.lists(names, unique=True), outgoing=st.lists(names), hosts=st.lists(names, max_size=4))
def test_whatever_others_call_themselves_each_series_stands_once(
    locals_: list[str], outgoing: list[str], hosts: list[str]
) -> None:
    values = told(
        NodeStatus(
            local=[LocalStatus(name, True, 1, 0, 0) for name in locals_],
            outgoing=[OutgoingStatus(name, True, 1, "h", "connected", "", 0, 0, None) for name in outgoing],
            sessions=[SessionStatus(host, "G", 64, 1) for host in hosts],
        )
    )
    for name, given_names in (
        ("mqproto_queue_messages", locals_),
        ("mqproto_outgoing_messages", outgoing),
        ("mqproto_session_unacknowledged_messages", hosts),
    ):
        assert sum(value for key, value in values.items() if key[0] == name) == len(given_names)
    assert all(len(label) <= 200 for _, labels in values for label in labels)


def test_names_that_are_plain_are_told_as_they_are() -> None:
    values = told(
        NodeStatus(local=[LocalStatus('a"b\\c', True, 1, 0, 0)]), Facts("n", "GUID", "1", "to {}".format)
    )
    assert values["mqproto_queue_messages", ('a"b\\c',)] == 1


def test_there_are_no_more_series_however_many_queues_there_are() -> None:
    def status(count: int) -> NodeStatus:
        return NodeStatus(local=[LocalStatus(f"q{n}", True, n, 0, 0, oldest_s=0) for n in range(count)])

    some, many = told(status(LOCAL_LISTED)), told(status(3 * LOCAL_LISTED))
    assert len(some) == len(many)
    assert many["mqproto_unlisted_queues", ("local",)] == 2 * LOCAL_LISTED
    assert many["mqproto_unlisted_messages", ("local",)] == sum(range(2 * LOCAL_LISTED))
    assert ("mqproto_queue_messages", (f"q{3 * LOCAL_LISTED - 1}",)) in many, "those with the most are told"
    assert max(LOCAL_LISTED, QUEUES_LISTED) == 500
    assert SESSIONS_LISTED == 100, "the README says so"


def test_of_two_queues_with_one_name_for_prometheus_all_waits_are_counted() -> None:
    def queue(name: str, within: int, count: int) -> LocalStatus:
        return LocalStatus(
            name, True, 0, 0, 0, received=count, waited_s=2.0 * count, waited_within=[(1.0, within)]
        )

    journal = LocalStatus("q;journal", True, 0, 0, 0)
    values = told(NodeStatus(local=[queue("x" * 299 + "y", 1, 2), queue("x" * 300, 3, 4), journal]))
    found = {name: value for name, value in values.items() if "queue_wait" in name[0]}
    [label] = {labels[-1] for _, labels in found}
    name = "mqproto_queue_wait_seconds"
    assert found == {
        (f"{name}_bucket", ("1.0", label)): 4,
        (f"{name}_bucket", ("+Inf", label)): 6,
        (f"{name}_count", (label,)): 6,
        (f"{name}_sum", (label,)): 12,
    }


@needs("promtool")
async def test_what_is_written_in_pieces_is_one_metric_for_prometheus() -> None:
    queues = [
        LocalStatus(f"q{n}", True, 0, 0, 0, received=n, waited_s=n, waited_within=[(60.0, n)])
        for n in range(2 * PIECE + 1)
    ]
    status = NodeStatus(local=queues)
    answer = await Monitoring(Monitored(lambda: families(status, FACTS), str)).answer(
        Request(RequestHead("GET", "/metrics", {}), lambda _: b"")  # type: ignore[arg-type, return-value]
    )
    await to_thread.run_sync(lambda: promtool_takes(answer.body))
    [metric] = [one for one in parsed(answer.body) if one.name == "mqproto_queue_wait_seconds"]
    counts = {one.labels["queue"]: one.value for one in metric.samples if one.name.endswith("_count")}
    assert counts == {queue.name: queue.received for queue in queues}


def promtool_takes(text: bytes) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_of_several_sessions_with_a_neighbour_the_slowest_is_told_and_of_none_that_is_not_known() -> None:
    sessions = [
        SessionStatus("h", "G", 64, 1, 1, 0.25, None),
        SessionStatus("h", "G", 64, 1, 2, 0.125, 0.5),
        SessionStatus("other", "G", 64, 1),
    ]
    values = told(NodeStatus(sessions=sessions))
    assert {key: value for key, value in values.items() if "session_" in key[0] and "_seconds" in key[0]} == {
        ("mqproto_session_acknowledged_seconds", ("h", "G")): 0.25,
        ("mqproto_session_round_trip_seconds", ("h", "G")): 0.5,
    }


def test_room_is_what_quota_and_disk_leave() -> None:
    assert room_bytes(NodeStatus(quota_bytes=10, stored_bytes=4)) == 6
    assert room_bytes(NodeStatus(quota_bytes=10, stored_bytes=4, free_bytes=5)) == 5
    assert room_bytes(NodeStatus(quota_bytes=10, stored_bytes=14, free_bytes=5)) == 0
    assert room_bytes(NodeStatus(quota_bytes=10, stored_bytes=4, disk_is_full=True)) == 0


def test_the_age_of_what_is_not_in_memory_is_not_made_up() -> None:
    def age(waiting: int, oldest_s: int | None) -> float | None:
        queue = LocalStatus("q", True, waiting, 0, 0, oldest_s=oldest_s)
        values = told(NodeStatus(utc_s=100, local=[queue]))
        return values.get(("mqproto_queue_oldest_message_age_seconds", ("q",)))

    assert (age(0, None), age(1, 90), age(1, None), age(1, 120)) == (0, 10, None, 0)


def expressions() -> dict[str, str]:
    """Return the expressions in the alert rules and the dashboard's panels."""
    found = dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", ALERTS.read_text("utf-8")))
    assert len(found) == ALERTS.read_text("utf-8").count("alert:")
    for panel in json.loads((FOLDER / "dashboard.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*")
            found[f"{panel['title']} {target['refId']}"] = text.replace("$instance", ".*")
    return found


def test_rules_and_dashboard_ask_for_what_there_is() -> None:
    edges = (*of_gateway(EDGE, GATEWAY), *of_trigger(EDGE, TRIGGER))
    known = {*labels([*families(WHOLE, FACTS), *edges])}
    known |= {f"{name}_bucket" for name in known}
    for where, text in expressions().items():
        assert set(NAME.findall(text)) <= known, where
        assert set(NAME.findall(text)) or "up{" in text or "process_" in text, where


@needs("promtool")
def test_prometheus_takes_rules_panels_and_metrics(tmp_path: Path) -> None:
    rules = tmp_path / "panels.yml"
    records = [{"record": f"r{n}", "expr": text} for n, text in enumerate(expressions().values())]
    rules.write_text(json.dumps({"groups": [{"name": "panels", "rules": records}]}))
    text = generate_latest(Registry(WHOLE, FACTS))
    for arguments, given_text in (
        (["rules", str(ALERTS), str(rules)], b""),
        (["metrics"], text),
    ):
        done = subprocess.run(
            ["promtool", "check", *arguments], input=given_text, capture_output=True, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode()


@needs("promtool")
def test_rules_say_what_is_wrong_and_are_quiet_otherwise(tmp_path: Path) -> None:
    def series(text: str, values: str) -> dict[str, str]:
        return {"series": text, "values": values}

    def alert(name: str, at: str, **labels: str) -> dict[str, Any]:
        severity = "critical" if name == "MqprotoStoreFull" else "warning"
        said = [{"exp_labels": {"severity": severity, **labels}}] if labels else []
        return {"eval_time": at, "alertname": name, "exp_alerts": said}

    test: dict[str, Any] = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    series('mqproto_store_full{instance="a"}', "0x10 1x10"),
                    series(
                        'mqproto_refused_messages_total{instance="a", cause="NACK_BAD_DST_Q"}', "0x10 1x40"
                    ),
                    series('mqproto_refused_messages_total{instance="a", cause="NACK_PURGED"}', "0x50"),
                    series('mqproto_queue_oldest_message_age_seconds{instance="a", queue="q"}', "1000x50"),
                    series('mqproto_queue_consumers{instance="a", queue="q"}', "1x10 0x40"),
                    series(
                        'mqproto_queue_oldest_message_age_seconds{instance="a", queue="q;journal"}', "1000x50"
                    ),
                    series('mqproto_queue_consumers{instance="a", queue="q;journal"}', "0x50"),
                    series(
                        'mqproto_queue_wait_seconds_bucket{instance="a", queue="q", le="300.0"}', "0+1x50"
                    ),
                    series(
                        'mqproto_queue_wait_seconds_bucket{instance="a", queue="q", le="1800.0"}', "0+3x50"
                    ),
                    series('mqproto_queue_wait_seconds_bucket{instance="a", queue="q", le="+Inf"}', "0+3x50"),
                    series('mqproto_arrival_age_seconds_bucket{instance="a", le="300.0"}', "0+3x50"),
                    series('mqproto_arrival_age_seconds_bucket{instance="a", le="+Inf"}', "0+3x50"),
                ],
                "alert_rule_test": [
                    alert("MqprotoStoreFull", "5m"),
                    alert("MqprotoStoreFull", "15m", instance="a"),
                    alert("MqprotoMessagesRefused", "5m"),
                    alert("MqprotoMessagesRefused", "15m", instance="a", cause="NACK_BAD_DST_Q"),
                    alert("MqprotoMessagesRefused", "40m"),
                    alert("MqprotoQueueNotRead", "9m"),
                    alert("MqprotoQueueNotRead", "20m", instance="a", queue="q"),
                    alert("MqprotoMessagesWaitLong", "9m"),
                    alert("MqprotoMessagesWaitLong", "20m", instance="a", queue="q"),
                    alert("MqprotoMessagesArriveLate", "20m"),
                ],
            }
        ],
    }
    # What a rule says to people is Prometheus' to fill in; which speaks, and of what, is compared.
    plain = tmp_path / "alerts.yml"
    plain.write_text(re.sub(r" +annotations:\n.*\n", "", ALERTS.read_text("utf-8")))
    test["rule_files"] = [str(plain)]
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(test))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
