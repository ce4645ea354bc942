"""Runs many cases against one live peer, several at once, until the time is up or there are enough findings.

A canary, which is an honest session, must be served all the time. If the peer fails as a whole, the cases of that
moment are suspects. Each suspect is sent again alone, the culprit is made smaller, and the campaign goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.fuzz.findings import Findings
from mqproto.simulator.fuzz.peer.attack import Attack
from mqproto.simulator.fuzz.peer.canary import a_canary
from mqproto.simulator.fuzz.peer.conduct import Fault, PeerFailure
from mqproto.simulator.fuzz.peer.draw import draw_case
from mqproto.simulator.fuzz.peer.investigation import OWN, Investigation
from mqproto.simulator.fuzz.peer.lines import Place, never
from mqproto.simulator.fuzz.peer.process import Process
from mqproto.simulator.fuzz.tactics.cases import Case
from mqproto.simulator.fuzz.tactics.talk import PeerTarget
from mqproto.wire import NULL_GUID

CHECK_S: Final = 0.1
"""The time between two checks of the canary, in seconds."""
TURNED_AWAY_S: Final = 0.25
TRIES: Final = 40
"""The maximum number of tries for a case that the peer keeps turning away. The tries are TURNED_AWAY_S apart."""
SUSPECTS: Final = 128
"""The maximum number of recent cases that are suspects when the peer fails as a whole."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The extent of a campaign, and the folder for its findings.

    limit: the number of cases; None for as many as fit into `seconds`.
    enough: the number of findings after which the campaign ends.
    """

    seed: int
    seconds: float
    limit: int | None = None
    parallel: int = 8
    enough: int = 20
    shrink_s: float = 30
    folder: Path | None = None


@dataclass(slots=True)
class Report:
    """The results of a campaign."""

    peer: str
    seed: int
    findings: Findings
    cases: int = 0
    seconds: float = 0
    kinds: Counter[str] = field(default_factory=Counter)
    counts: dict[str, int] = field(default_factory=dict)
    checks: int = 0
    slowest_check_s: float = 0
    memory_mb: tuple[float, float] | None = None
    ended: str = ""
    """Why the campaign ended early; empty if it did not."""

    @property
    def cases_per_s(self) -> float:
        """The number of cases per second."""
        return self.cases / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the report in a form for other programs."""
        return {
            "peer": self.peer,
            "seed": self.seed,
            "cases": self.cases,
            "seconds": round(self.seconds, 1),
            "cases_per_s": round(self.cases_per_s, 1),
            "kinds": dict(self.kinds.most_common()),
            **{name.replace(" ", "_"): value for name, value in self.counts.items()},
            "checks": self.checks,
            "slowest_check_ms": round(1_000 * self.slowest_check_s, 1),
            "memory_mb": list(self.memory_mb) if self.memory_mb else None,
            "ended": self.ended,
            "findings": self.findings.as_json(),
        }


class Campaign:
    """Runs one campaign against a peer.

    Args:
        process: the peer's process, if it is known.
        show: called from time to time with the report so far.
    """

    def __init__(
        self,
        place: Place,
        target: PeerTarget,
        plan: Plan,
        process: Process | None = None,
        show: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self.report = Report(place.address, plan.seed, Findings(plan.folder), counts=place.counts)
        self._place = place
        self._target = target
        self._plan = plan
        self._process = process
        self._show = show
        self._numbers = iter(range(1, plan.limit)) if plan.limit is not None else count(1)
        self._in_flight: dict[int, Case] = {}
        self._recent: list[Case] = []
        self._troubles: list[tuple[Fault, list[Case]]] = []
        self._stopping = False

    async def run(self) -> Report:
        """Run the valid conversation, first alone and then next to a canary; after that, run the other cases."""
        began_s = trio.current_time()
        ends_at = began_s + self._plan.seconds
        try:
            async with a_canary(self._place, self._target, self._plan.seed) as self._canary:
                self._investigation = Investigation(
                    self._place,
                    self._canary,
                    self.report.findings,
                    chance(self._plan.seed, "renewed"),
                    self._plan.shrink_s,
                    {"seed": self._plan.seed, "peer": self._place.address},
                )
                if await self._begins_well():
                    # Nothing up to now could have used up our host's share of the peer.
                    self._place.holds_up = self._canary.is_held_up
                    while await self._round(ends_at):
                        await self._investigate()
                        if self.report.ended or trio.current_time() >= ends_at:
                            break
        finally:
            self._place.holds_up = never
            self.report.seconds = trio.current_time() - began_s
            self.report.findings.close()
            if self._process is not None:
                self.report.memory_mb = self._process.first_mb, self._process.last_mb
        return self.report

    async def _begins_well(self) -> bool:
        """Return whether case 0 passes. If it does not, later failures would mean nothing."""
        case = draw_case(self._target, self._plan.seed, 0)
        self._count(case)
        fault = await Attack(self._place, _nobody).carry_out(case) or await self._canary.check()
        if fault is None and (beside := await self._investigation.tried(case)) is not None:
            fault = Fault(PeerFailure.STARVES, "it serves one session at a time", str(beside))
        if fault is not None:
            self._investigation.keep(fault, case)
            self.report.ended = "the valid conversation fails, so that no other can be judged"
        return fault is None

    # Rounds

    async def _round(self, ends_at: float) -> bool:
        """Run cases. Return True if something failed, or False if the time or the cases ran out first."""
        self._stopping = False
        self._troubles.clear()
        self._recent.clear()
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            nursery.start_soon(self._watch, ends_at)
            async with trio.open_nursery() as workers:
                for _ in range(self._plan.parallel):
                    workers.start_soon(self._work)
            nursery.cancel_scope.cancel()
        self._in_flight.clear()
        # A fault of the last cases may not have shown yet.
        if not self._troubles and (fault := await self._canary.check()) is not None:
            self._trouble(fault, None)
        return bool(self._troubles)

    async def _work(self) -> None:
        while not self._stopping and (number := next(self._numbers, None)) is not None:
            case = draw_case(self._target, self._plan.seed, number)
            self._count(case)
            self._in_flight[number] = case
            fault = await self._attack(case)
            del self._in_flight[number]
            self._recent.append(case)
            if fault is not None:
                self._trouble(fault, case)

    async def _watch(self, ends_at: float) -> None:
        """Watch the canary, the process and the time."""
        while True:
            finished = len(self._recent)
            fault = await self._canary.check()
            self.report.checks += 1
            self.report.slowest_check_s = self._canary.slowest_s
            if fault is None and self._process is not None:
                fault = self._process.check()
            if fault is not None:
                self._trouble(fault, None)
                return
            del self._recent[:finished]
            self.report.seconds = trio.current_time() - ends_at + self._plan.seconds
            self._show(self.report)
            if trio.current_time() >= ends_at:
                self._stopping = True
            await trio.sleep(CHECK_S)

    def _trouble(self, fault: Fault, case: Case | None) -> None:
        """Record a fault, which concerns either one case or the whole peer."""
        if case is not None and fault.oracle in OWN and self._investigation.knows(fault, case):
            return
        others = [*self._in_flight.values(), *reversed(self._recent)]
        suspects = [*([case] if case else []), *(other for other in others if other is not case)]
        self._troubles.append((fault, suspects[:SUSPECTS]))
        self._stopping = True
        if fault.oracle not in OWN:
            self._scope.cancel()

    async def _investigate(self) -> None:
        """Investigate all faults of a round."""
        for fault, suspects in self._troubles:
            if fault.oracle is PeerFailure.GROWS:
                again = f"mqproto fuzz peer {self._place.address} --seed {self._plan.seed}"
                what = f"the same again with `{again} --count {self.report.cases}`"
                everything = Case("all cases up to now", what, (), NULL_GUID, 0)
                self._investigation.keep(fault, everything)
                continue
            await self._investigation.look_into(fault, suspects)
            if self._process is not None and not self._process.lives:
                self.report.ended = f"process {self._process.pid} has ended"
                return
            if self._investigation.is_gone:
                self.report.ended = "the peer serves nobody any more"
                return
            if len(self.report.findings) >= self._plan.enough:
                self.report.ended = f"{self._plan.enough} findings are enough"
                return

    async def _attack(self, case: Case) -> Fault | None:
        """Carry out a case. If the peer turned it away, try again, because the peer has then read none of it."""
        for _ in range(TRIES):
            attack = Attack(self._place, self._canary.check)
            fault = await attack.carry_out(case)
            if fault is not None or self._stopping or not attack.was_turned_away:
                return fault
            await trio.sleep(TURNED_AWAY_S)
        return None

    def _count(self, case: Case) -> None:
        self.report.cases += 1
        self.report.kinds[case.kind] += 1


async def _nobody() -> Fault | None:
    return None
