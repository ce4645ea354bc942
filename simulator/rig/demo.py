"""`mqproto demo`, which sends traffic through three queue managers while everything that can break does break.

The nodes are processes with their own disks; the links between them are proxies that can be cut and stalled, and that
record their traffic. topology/shipped/demo.toml has the plan of faults. The traffic is spread over the time of the
faults, so messages flow during each fault. Finally, sent and received messages are compared, and the capture is read.
"""

from __future__ import annotations

import shutil
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.base.recorder import Recorder
from mqproto.simulator.base.screen import ProgressScreen
from mqproto.simulator.rig.links import BreakableLink, Links, free, shown_addresses
from mqproto.simulator.rig.load.consumer import PATIENCE_S
from mqproto.simulator.rig.load.workload import Workload
from mqproto.simulator.rig.observer import LOOK_S
from mqproto.simulator.rig.proof import WireCount, delays_ms, examine, percentile
from mqproto.simulator.rig.report import DemoReport, Outage
from mqproto.simulator.rig.rig import DESTINATION, SENDER, Rig, new_folder, until
from mqproto.simulator.topology import Action, Fault, Topology, load

AFTER_FAULTS_S: Final = 2.0
"""The time, in seconds, for which traffic continues after the last fault is over."""
SETTLE_S: Final = 25.0
"""Everything owed must arrive within this many seconds after the last message was sent."""


async def run_demo(
    workload: Workload,
    capture: Path | None = None,
    screen: ProgressScreen | None = None,
    topology: Topology | None = None,
) -> DemoReport:
    """Run the demo; return its report.

    Args:
        capture: the file for the capture; by default in a new temporary folder.
        topology: replaces demo.toml and its faults.

    Raises:
        UsageError: the capture cannot be written there, or a link has TLS, so that nobody could read the capture.
        NodeError: a node does not start.
    """
    topology = topology or load("demo")
    if any(link.tls for link in topology.links):
        raise UsageError(
            f"{topology.name}: the demo reads what crosses its links, and TLS is for nobody to read; "
            "leave tls out, or use `mqproto crash --topology`"
        )
    topology = free(topology)
    epoch_ns = time.time_ns() - int(trio.current_time() * 1e9)
    with _temporary_folder() as folder:
        path = capture or folder / "demo.pcapng"
        with _created(path) as file:
            recorder = Recorder(
                file,
                comment=f"mqproto demo: {workload.description}",
                clock=lambda: epoch_ns + int(trio.current_time() * 1e9),
            )
            screen = screen or ProgressScreen(quiet=True)
            demo = Demo(topology, folder / "nodes", workload, recorder, epoch_ns, screen)
            await demo.run()
            _close(recorder, path)
        managers = {address: topology.nodes[name].guid for name, address in shown_addresses(topology).items()}
        report = demo.report(examine(path, managers), str(path))
        if not report.broken:
            shutil.rmtree(folder / "nodes")  # Otherwise the logs in it say more.
        return report


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yield a new folder; at the end, remove it if it is empty."""
    folder = new_folder("demo")
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _created(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name another file with --capture") from None


def _close(recorder: Recorder, path: Path) -> None:
    try:
        recorder.close()
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}, so the capture lacks {recorder.lost_frame_count:,} frames and proves nothing; "
            "name a file on another disk with --capture"
        ) from None


class Demo(Rig):
    """One run, from the first process to the last message.

    Args:
        directory: the folder of the nodes.
        epoch_ns: the recorder's time at the moment when trio's clock is at 0.
    """

    def __init__(
        self,
        topology: Topology,
        directory: Path,
        workload: Workload,
        recorder: Recorder,
        epoch_ns: int,
        screen: ProgressScreen,
    ) -> None:
        super().__init__(topology, directory, screen)
        self.workload = workload
        self.links = Links(topology, recorder)
        self.outages: list[Outage] = []
        self.orders = self.flow("orders", workload)
        self.unsettled = 0
        self._epoch_ns = epoch_ns

    async def run(self) -> None:
        """Start the nodes, send, break things, and wait until everything owed has arrived.

        Raises:
            NodeError: a node does not start, or ends on its own.
        """
        async with trio.open_nursery() as nursery:
            detours = await nursery.start(self.links.run)
            async with self.running(detours) as watching:
                watching.start_soon(self.watch)
                async with trio.open_nursery() as traffic:
                    traffic.start_soon(self.orders.producer.run, self._span_s())
                    traffic.start_soon(self._break_all)
                await self._settle()
            # Links end after the nodes: these have closed their sessions by now.
            nursery.cancel_scope.cancel()

    def report(self, wire: WireCount, capture: str) -> DemoReport:
        """Return the report of the run."""
        producer, consumer = self.orders.producer, self.orders.consumer
        delays = delays_ms(producer.sent, consumer.received)
        for outage in self.outages:
            outage.flowed_at_s = self._flowed_at_s(outage, wire)
        return DemoReport(
            workload=self.workload.description,
            left_out=self.workload.left_out,
            duration_s=self.end_s - self.start_s,
            comparison=self.orders.comparison(),
            wire=wire,
            nodes=self.observer.nodes,
            outages=self.outages,
            p50_ms=percentile(delays, 50),
            p99_ms=percentile(delays, 99),
            sent_bytes=producer.sent_bytes,
            in_doubt=consumer.in_doubt_count,
            committed_in_doubt=consumer.committed_in_doubt_count,
            unsettled=self.unsettled,
            capture=capture,
            usage=self.usage,
        )

    def _flowed_at_s(self, outage: Outage, wire: WireCount) -> float | None:
        """Return the time at which messages flowed again after an outage; None if they never did.

        It is the time at which a message was received, after messages had crossed each link of the route, one link
        after the other.
        """
        at_s = outage.spawned_at_s if outage.is_restart else outage.restored_at_s
        shown = shown_addresses(self.topology)
        here = SENDER
        while at_s is not None and here != DESTINATION:
            hop = self.topology.next_hop(here, DESTINATION)
            times = wire.crossings.get((shown[here], shown[hop]), [])
            place = bisect(times, (at_s + self.start_s) * 1e9 + self._epoch_ns)
            at_s = (times[place] - self._epoch_ns) / 1e9 - self.start_s if place < len(times) else None
            here = hop
        if at_s is None:
            return None
        received = (message.at_s - self.start_s for message in self.orders.consumer.received)
        return next((received_s for received_s in received if received_s >= at_s), None)

    # Traffic

    def _span_s(self) -> float:
        """Return the number of seconds over which the messages are sent."""
        ends = [fault.at_s + (fault.for_s or 0) for fault in self.topology.faults]
        return max(ends, default=0) + AFTER_FAULTS_S

    async def _settle(self) -> None:
        """Wait until everything is received and acknowledged, then wait a little longer for messages that must not
        come.
        """
        with trio.move_on_after(SETTLE_S):
            await trio.sleep(2 * LOOK_S)  # The sender was asked since the last message was sent.
            await until(lambda: self.orders.is_empty and not self._unsettled())
            await trio.sleep(2 * PATIENCE_S)
        self.unsettled = self._unsettled()

    def _unsettled(self) -> int:
        status = self.observer.statuses.get(SENDER)
        return sum(queue.waiting for queue in status.outgoing) if status else self.sent_count

    # Faults

    async def _break_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for fault in self.topology.faults:
                await trio.sleep_until(self.start_s + fault.at_s)
                nursery.start_soon(self._break, fault)

    async def _break(self, fault: Fault) -> None:
        links = self._links_of(fault)
        subject = fault.node or ", ".join(map(str, links))
        outage = Outage(fault.action, subject, self.elapsed_s(), self.received_count)
        self.outages.append(outage)
        self.screen.say(f"{outage.began_at_s:4.1f} s  {fault.action} {subject}")
        if fault.node and outage.is_restart:
            end = self.supervisor.kill if fault.action is Action.KILL else self.supervisor.stop
            await end(fault.node)
            await trio.sleep_until(self.start_s + outage.began_at_s + (fault.for_s or 0))
            started = await self.supervisor.start(fault.node)
            outage.spawned_at_s = started.spawned_s - self.start_s
            outage.restored_at_s = started.ready_s - self.start_s
        else:
            outage.reset_count = sum(link.break_off(fault.action) for link in links)
            await trio.sleep(fault.for_s or 0)
            for link in links:
                link.restore()
            outage.restored_at_s = self.elapsed_s()
        self.screen.say(f"{outage.restored_at_s:4.1f} s  {subject} is back")

    def _links_of(self, fault: Fault) -> list[BreakableLink]:
        if fault.between:
            return [self.links.between(*fault.between)]
        assert fault.node is not None
        return self.links.of(fault.node)
