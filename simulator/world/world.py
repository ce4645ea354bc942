"""A whole world: nodes, links and applications in one event heap. A storm, then calm, then the checks.

result = simulate(draw(7))
assert not result.breaches
"""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final

from captures.net.tcp import MAX_SEGMENT_BYTES
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import NextHop, Routes
from mqproto.wire import MessageClass
from simulator.world import invariants
from simulator.world.agenda import Agenda
from simulator.world.consumers import Application
from simulator.world.faults import EVENTS
from simulator.world.ledger import Ledger
from simulator.world.links import Line
from simulator.world.machine import Machine
from simulator.world.scenario import Burst, Consumer, Scenario, guid_of
from simulator.world.sniffer import Sniffer
from simulator.world.trace import Trace
from simulator.world.traffic import KINDS, QUEUES, REPLIES, Message
from simulator.world.ways import steps_between

RESTART_MS: Final = 500
"""How long after a crash of its own a node is started again."""
UNTIMELY: Final = frozenset({"jump clock", "slow disk", "full disk"})
"""Faults after which messages whose time is over may leave late."""
CALM_MS: Final = 1_800_000
"""How long the calm is at most; it ends as soon as nobody owes anything."""
CALM_STEP_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Breach:
    """An invariant that did not hold, when, and what broke it."""

    invariant: str
    at_ms: int
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant.replace('_', ' ')}, at {self.at_ms:,} ms: {self.detail}"


class _Stop(Exception):  # noqa: N818
    """An invariant is broken; what comes after it says nothing."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a world."""

    scenario: Scenario
    breach: Breach | None
    tally: Counter[str] = field(compare=False)
    maxima: dict[str, int] = field(compare=False)
    """Figures of which a report wants the largest, such as the longest outage, in milliseconds."""
    trace: Trace = field(compare=False)
    messages: tuple[Message, ...] = field(default=(), compare=False)
    """All that applications have sent and a source has accepted, and what became of each."""
    end_ms: int = 0


class World:
    """One scenario at work.

    Args:
        traced: keep all that happens.
        capture: a file for what a sniffer sees of it, as pcapng.
        segment_bytes: the most payload in one frame of it.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        traced: bool = False,
        capture: BinaryIO | None = None,
        segment_bytes: int = MAX_SEGMENT_BYTES,
    ) -> None:
        self.scenario = scenario
        self.agenda = Agenda()
        self.sniffer = None
        if capture is not None:
            self.sniffer = Sniffer(capture, scenario.nodes, self.agenda, segment_bytes=segment_bytes)
        self.trace = Trace(wanted=traced)
        self.ledger = Ledger(self._breach, _common_endings(scenario))
        self.maxima: dict[str, int] = {}
        self.route_choices = dict(scenario.routes)
        self.is_calm = False
        self.breach: Breach | None = None
        self.lines: dict[str, Line] = {}
        self.machines = {name: self._machine(name) for name in scenario.nodes}
        for link in scenario.links:
            line = self.lines[link.name] = Line(link, scenario.seed, self.agenda, self.sniffer)
            line.first_number = scenario.counters.session if scenario.counters is not None else 0
            self.machines[link.one].lines[link.other] = line
            self.machines[link.other].lines[link.one] = line
        self._map = {link.name: link for link in scenario.links}
        """The links that operators know of, by name."""
        self._steps = steps_between(scenario.nodes, scenario.links)
        self._employ()

    def _machine(self, name: str) -> Machine:
        bursts = self.scenario.bursts
        queues: list[QueueDeclaration] = []
        if any(name in burst.targets for burst in bursts):
            queues += [replace(queue, quota_bytes=self.scenario.quota_bytes or None) for queue in QUEUES]
        if any(burst.source == name and KINDS[burst.kind].acknowledged for burst in bursts):
            queues.append(REPLIES)
        has_sequences = any(
            name in (burst.source, *burst.targets) and KINDS[burst.kind].transactional for burst in bursts
        )
        return Machine(self, name, tuple(queues), has_sequences=has_sequences)

    def _employ(self) -> None:
        """Consumers where the scenario has them, and one more where nobody else would receive."""
        consumers = list(self.scenario.consumers)
        attended = {(consumer.node, consumer.queue) for consumer in consumers}
        for machine in self.machines.values():
            for queue in machine.queues:
                if (machine.name, queue.name) not in attended:
                    consumers.append(Consumer(node=machine.name, queue=queue.name))
        for number, consumer in enumerate(consumers, 1):
            machine = self.machines[consumer.node]
            if any(queue.name == consumer.queue for queue in machine.queues):
                machine.applications[number] = Application(number, consumer, machine)

    def routes_of(self, name: str) -> Routes:
        """The shortest ways from a node to all others, that of its choice first."""
        choice = self.route_choices.get(name, 0)
        managers = {}
        for goal in self.scenario.nodes:
            if steps := self._steps.get((name, goal)):
                chosen = choice % len(steps)
                managers[guid_of(goal)] = tuple(
                    NextHop(guid_of(step), step) for step in (*steps[chosen:], *steps[:chosen])
                )
        lines = self.machines[name].lines
        hosts = {host: NextHop(guid_of(host), host) for host in lines if lines[host].link.name in self._map}
        return Routes(managers, hosts)

    def take_off_the_map(self, link: str) -> None:
        """Who starts from now on has ways around a link."""
        del self._map[link]
        self._steps = steps_between(self.scenario.nodes, self._map.values())

    def way(self, name: str, goal: str) -> list[str]:
        """The nodes that a message from one to the other passes, both of them included."""
        way = [name]
        while way[-1] != goal and (steps := self._steps.get((way[-1], goal))):
            way.append(steps[self.route_choices.get(way[-1], 0) % len(steps)])
        return way

    # A run

    def run(self) -> Result:
        """The storm, the calm and the checks."""
        try:
            self._storm()
            self._calm()
            for invariant in invariants.AT_REST:
                if reason := invariant(self):
                    self._breach(invariant.__name__, reason)
        except _Stop:
            pass
        except Exception as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
            self.breach = Breach(
                "no_error_of_our_own", self.agenda.now_ms, f"{type(error).__name__} in {where}: {error}"
            )
        for machine in self.machines.values():
            self.look(machine)
            machine.files.leave()
        return Result(
            self.scenario,
            self.breach,
            self.ledger.tally,
            self.maxima,
            self.trace,
            tuple(self.ledger.accepted),
            self.agenda.now_ms,
        )

    def _storm(self) -> None:
        agenda, scenario = self.agenda, self.scenario
        for machine in self.machines.values():
            machine.start()
        for number, burst in enumerate(scenario.bursts):
            agenda.at(burst.at_ms, self.machines[burst.source].submit, burst, number)
        for fault in scenario.faults:
            agenda.at(fault.at_ms, self.strike, fault.kind, fault)
        if any("time_to_be_received_s" in KINDS[burst.kind].draft for burst in scenario.bursts) and not (
            UNTIMELY & {fault.kind for fault in scenario.faults}
        ):
            for at_ms in range(0, scenario.storm_ms, 1_000):
                agenda.at(at_ms, self._look_for_what_is_over)
        agenda.run_until(scenario.storm_ms)

    def _look_for_what_is_over(self) -> None:
        for machine in self.machines.values():
            reason = invariants.what_is_over_leaves_in_time(machine)
            self.ledger.check("what_is_over_leaves_in_time", reason)

    def strike(self, kind: str, fault: object) -> None:
        """Something goes wrong."""
        self.trace.add(self.agenda.now_ms, kind, fault)
        if EVENTS[kind](self, fault):  # type: ignore[arg-type]
            self.ledger.tally[f"fault {kind}"] += 1

    def _calm(self) -> None:
        """Everything works again; it goes on until nobody owes anything, or for too long."""
        self.is_calm = True
        now_ms = self.agenda.now_ms
        self.trace.add(now_ms, "calm")
        for line in self.lines.values():
            line.mend()
        for machine in self.machines.values():
            machine.mend()
        self._send_once_more()
        end_ms = now_ms + CALM_MS
        step_ms = CALM_STEP_MS
        retained: str | None = ""
        while retained is not None and self.agenda.now_ms < end_ms:
            self.agenda.run_until(self.agenda.now_ms + step_ms)
            retained = invariants.nothing_is_retained(self)
            step_ms = min(2 * step_ms, 60_000)
        self.maximum("calm until nothing is owed", self.agenda.now_ms - now_ms)
        self.ledger.check("nothing_is_retained", retained)

    def _send_once_more(self) -> None:
        """Where an operator has deleted what was sent, one more message of each sequence follows.

        A copy that the destination holds behind one that was lost and then deleted stays there until it comes.
        """
        streams = {
            (burst.source, target, KINDS[burst.kind].direct)
            for burst in self.scenario.bursts
            for target in burst.targets
            if self.machines[burst.source].has_purged and KINDS[burst.kind].transactional
        }
        for number, (source, target, direct) in enumerate(sorted(streams), len(self.scenario.bursts)):
            kind = "direct" if direct else "transactional"
            burst = Burst(at_ms=self.agenda.now_ms, source=source, target=target, kind=kind)
            self.machines[source].submit(burst, number)

    def restart_later(self, machine: Machine) -> None:
        """A node that stopped by itself comes back after a while."""
        self.agenda.at(self.agenda.now_ms + RESTART_MS, self.restart, machine, machine.life)

    def restart(self, machine: Machine, life: int) -> None:
        """Start a node that is down since that life ended."""
        if machine.core is None and machine.life == life:
            self.maximum("outage of a node", self.agenda.now_ms - machine.down_since_ms)
            machine.start()

    # What is counted

    def look(self, machine: Machine) -> None:
        """Take down what a core says of itself, for a killed one cannot be asked."""
        if machine.core is None:
            return
        for name, count in machine.core.counts().items():
            self.ledger.tally[f"core {name}"] += count

    def maximum(self, name: str, value: int) -> None:
        """A figure of which the largest counts."""
        self.maxima[name] = max(self.maxima.get(name, 0), value)

    def take_apart(self) -> None:
        """Nobody needs it any more.

        Its parts know each other, so that without this only the collector would free them: late, and at the price of
        a tenth of the run.
        """
        self.agenda.forget_all()
        for machine in self.machines.values():
            machine.leave()
            vars(machine).clear()
        vars(self).clear()

    def _breach(self, name: str, detail: str) -> None:
        self.breach = Breach(name, self.agenda.now_ms, detail)
        self.trace.add(self.agenda.now_ms, "breach", name, detail)
        raise _Stop


def simulate(
    scenario: Scenario,
    *,
    traced: bool = False,
    capture: BinaryIO | None = None,
    segment_bytes: int = MAX_SEGMENT_BYTES,
) -> Result:
    """Run a scenario from its first event to its last check; the arguments are those of World.

    Raises:
        OSError: the capture could not be written; the run went on without it.
    """
    world = World(scenario, traced=traced, capture=capture, segment_bytes=segment_bytes)
    result = world.run()
    if world.sniffer is not None:
        world.sniffer.close()
    world.take_apart()
    return result


def _common_endings(scenario: Scenario) -> frozenset[int]:
    """The classes with which any message of a world may end unreceived."""
    endings = set()
    if scenario.quota_bytes:
        endings.add(MessageClass.NACK_Q_EXCEED_QUOTA)
    if any(consumer.rejects_every or consumer.gives_up_after for consumer in scenario.consumers):
        endings.add(MessageClass.NACK_RECEIVE_REJECTED)
    if any(fault.kind == "purge" for fault in scenario.faults):
        endings.add(MessageClass.NACK_Q_PURGED)
    if any(fault.kind == "purge outgoing" for fault in scenario.faults):
        endings.add(MessageClass.NACK_DELETED)
    return frozenset(endings)
