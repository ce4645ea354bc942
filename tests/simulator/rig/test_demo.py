"""A shorter demo: real processes, real sockets, real disks, real kills."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import Wanted, analyse
from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.captures.pipeline.tables.tables import Tables
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from mqproto.simulator.command.captured import names_of
from mqproto.simulator.rig.demo import run_demo
from mqproto.simulator.rig.load import workload
from mqproto.simulator.rig.observer import NodeCount
from mqproto.simulator.rig.proof import Comparison, WireCount
from mqproto.simulator.rig.report import DemoReport, Outage
from mqproto.simulator.topology import Action, Fault, Topology, load
from tests.captures.whole import streams
from tests.simulator.certificates import over_tls
from tests.simulator.typed import in_process

pytestmark = pytest.mark.usefixtures("forked_programs")

HOSTS = {"127.0.0.1": "sender", "127.0.0.2": "intermediate", "127.0.0.3": "destination"}
FAULTS = (
    Fault(at_s=0.4, action=Action.CUT, between=("sender", "intermediate"), for_s=0.3),
    Fault(at_s=1.0, action=Action.KILL, node="intermediate", for_s=0.2),
    Fault(at_s=3.5, action=Action.KILL, node="destination", for_s=0.2),
    Fault(at_s=6.0, action=Action.STALL, between=("intermediate", "destination"), for_s=0.3),
)


def short() -> Topology:
    return replace(load("demo"), faults=FAULTS).with_free_ports()


async def test_a_topology_whose_links_nobody_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="the demo reads what crosses its links, and TLS is for nobody to read"
    ):
        await run_demo(workload.orders(1, 0), topology=over_tls(short(), tmp_path))


@pytest.mark.parametrize("command", ["demo", "demo --edges", "validate ends", "crash", "crash -d {missing}"])
def test_a_run_without_room_for_its_folder_says_where_to_name_another(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setattr("tempfile.tempdir", str(missing))
    done = in_process(*command.format(missing=missing).split())
    advice = f"name another folder with {'--directory' if '-d' in command.split() else 'TMPDIR'}"
    assert (done.status, done.complaint) == (MISUSE, f"{missing}: No such file or directory; {advice}")


@pytest.mark.long
async def test_every_file_arrives_once_and_in_order_though_nodes_are_killed_and_links_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How soon all is settled is promised of a machine with nothing else to do: `make demo` shows that.
    monkeypatch.setattr("mqproto.simulator.rig.demo.SETTLE_S", 200.0)
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    for number in range(300):
        body = bytes([number % 256]) * (0 if number % 10 == 0 else number * 7)
        (folder / ("deep" if number % 2 else ".") / f"{number:03}").write_bytes(body)
    (folder / "large").write_bytes(bytes(3_000_000))
    report = await run_demo(workload.from_path(folder), tmp_path / "demo.pcapng", topology=short())

    assert report.broken == []
    assert report.comparison == Comparison(301, 301, 0, 0, 0, 0, 0)
    assert [outage.action for outage in report.outages] == [fault.action for fault in FAULTS]
    # Every fault came while there was more to send, and more came through when it was over. How much had come before it
    # is a matter of the machine.
    assert all(outage.delivered_before < 301 for outage in report.outages)
    assert all(outage.flowed_at_s is not None for outage in report.outages)
    assert report.wire.forwarded >= 301
    assert report.wire.session_acks
    assert report.wire.order_acks
    assert report.wire.final_acks
    assert not list(Path(report.capture).parent.glob("*.log"))
    hosts = {stream.source.host for stream in streams(report.capture)}
    assert hosts == {"127.0.0.1", "127.0.0.2", "127.0.0.3"}
    # What is connected bypasses no proxy: nobody talks to whom no link joins him with.
    pairs = {frozenset((stream.source.host, stream.destination.host)) for stream in streams(report.capture)}
    assert pairs == {frozenset(("127.0.0.1", "127.0.0.2")), frozenset(("127.0.0.2", "127.0.0.3"))}
    assert_tables_say_the_same(report, tmp_path / "tables")


def assert_tables_say_the_same(report: DemoReport, folder: Path) -> None:
    """Check that what `mqproto analyse` says about the capture agrees with what the demo's own proof saw in it."""
    tables = Tables(folder)
    result = analyse([report.capture], tables, LocalEngine(), Wanted(names=names_of(short())))
    assert {severity for severity, _ in result.codes} <= {"note"}
    assert result.series[0].totals.packets == report.wire.packets
    histories = tables.read("histories").to_pylist()
    assert len(histories) == report.comparison.delivered
    assert {row["outcome"] for row in histories} <= {Outcome.CONFIRMED, Outcome.REACHED}
    assert {tuple(row["route"]) for row in histories} == {("sender", "intermediate", "destination")}
    kinds = tables.read("packets", ["row_id", "kind"]).to_pylist()
    order_acks = {row["row_id"] for row in kinds if row["kind"] == "OrderAck"}
    relations = tables.read("relations", ["row_id", "destination"]).to_pylist()
    came = {row["row_id"] for row in relations if row["destination"] == "sender"} & order_acks
    assert len(came) == report.wire.order_acks
    # One that a later one overtook, as a queue manager was killed, says nothing.
    counted = {row["row_id"] for row in tables.read("order_acks").to_pylist() if row["at_source"]}
    assert counted
    assert counted <= came
    crossed: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in tables.read("hops").to_pylist():
        crossed[row["from_label"]].append(row)
    assert len(report.wire.crossings) == len(crossed) == 2
    for (source, _), times_ns in report.wire.crossings.items():
        hops = crossed[HOSTS[source]]
        assert sum(hop["copies"] for hop in hops) == len(times_ns)
        assert {hop["first_ns"] for hop in hops} | {hop["last_ns"] for hop in hops} <= set(times_ns)


def report_of(
    comparison: Comparison, *outages: Outage, wire: WireCount | None = None, unsettled: int = 0
) -> DemoReport:
    return DemoReport(
        workload="3 orders",
        left_out=("huge: 5,000,000 bytes",),
        duration_s=1.0,
        comparison=comparison,
        wire=wire or WireCount(forwarded=3),
        nodes={"sender": NodeCount(sent=3)},
        outages=list(outages),
        p50_ms=1.0,
        p99_ms=2.0,
        sent_bytes=3,
        in_doubt=0,
        committed_in_doubt=0,
        unsettled=unsettled,
        capture="x.pcapng",
    )


GOOD = Comparison(3, 3, 0, 0, 0, 0, 0)
KILLED = Outage(Action.KILL, "intermediate", 1.0, 2, spawned_at_s=1.5, restored_at_s=2.0, flowed_at_s=3.9)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (report_of(replace(GOOD, lost=1)), "1 messages lost"),
        (report_of(replace(GOOD, duplicated=2)), "2 messages delivered more than once"),
        (report_of(replace(GOOD, out_of_order=1)), "out of order"),
        (report_of(replace(GOOD, altered=1)), "altered"),
        (report_of(GOOD, unsettled=4), "acknowledgments of 4"),
        (report_of(GOOD, wire=WireCount(forwarded=2, faults=["message 7 was altered"])), "message 7"),
        (report_of(GOOD, wire=WireCount()), "no forwarded message"),
        (report_of(GOOD, replace(KILLED, flowed_at_s=None)), "no message came through after it"),
        (report_of(GOOD, replace(KILLED, restored_at_s=None)), "never came back"),
    ],
)
def test_any_broken_promise_is_named_and_is_exit_status_1(
    report: DemoReport, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo_status(report, monkeypatch) == FINDING
    assert words in capsys.readouterr().out
    [promise] = report.broken
    assert words in promise


def test_kept_promises_are_exit_status_0_and_both_times_since_a_restart_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo_status(report_of(GOOD, KILLED), monkeypatch) == DONE
    out = capsys.readouterr().out
    assert "1.90 s" in out
    assert "2.40 s" in out
    assert "broken" not in out
    assert "left out huge" in out


def demo_status(report: DemoReport, monkeypatch: pytest.MonkeyPatch) -> int:
    async def demo(*_: object) -> DemoReport:
        return report

    monkeypatch.setattr("mqproto.simulator.rig.demo.run_demo", demo)
    return run_command(["demo"])
