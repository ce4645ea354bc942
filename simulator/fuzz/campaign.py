"""Many cases against one live peer, several at once, until time is over or enough is found.

While cases run, a canary is served beside them. When something fails that is not one case's own, the cases of that
moment are suspects: each is sent again alone, the one that does it is made smaller, and the campaign goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import trio

from mqproto.wire import Guid
from simulator.fuzz.attack import Attack
from simulator.fuzz.canary import a_canary
from simulator.fuzz.cases import Case, case_as_how, joined
from simulator.fuzz.conduct import Fault, Oracle
from simulator.fuzz.findings import Finding, Findings
from simulator.fuzz.lines import Place
from simulator.fuzz.process import Process
from simulator.fuzz.smaller import calm, described, smaller
from simulator.fuzz.tactics import draw_case
from simulator.fuzz.talk import Target
from simulator.randomness import chance

CHECK_S: Final = 0.1
"""From one look at the canary to the next."""
SUSPECTS: Final = 128
"""How many of the last cases are suspected when the peer fails others."""
QUICK_S: Final = 0.2
SLOWNESS: Final = 4
"""While a case is made smaller, what a peer owes is waited for no longer than so many times what it took at most to
acknowledge a message of the canary, and not less than QUICK_S; at the end the whole patience is waited for."""
ALIVE: Final = (Oracle.HANGS, Oracle.WRONG)
"""Faults that a case sees itself. The others are of the whole peer, and any case may have caused them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, how much, and where findings go.

    limit: how many cases; None for as many as fit into `seconds`.
    enough: this many findings end the campaign.
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
    """What came of a campaign."""

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
    """Why it ended before its time, or empty."""

    @property
    def cases_per_s(self) -> float:
        """How many cases a second."""
        return self.cases / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
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
    """One campaign.

    Args:
        process: the peer's process, if it is known.
        show: is called from time to time with the report so far.
    """

    def __init__(
        self,
        place: Place,
        target: Target,
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
        self._numbers = iter(range(1, plan.limit) if plan.limit is not None else _forever())
        self._in_flight: dict[int, Case] = {}
        self._recent: list[Case] = []
        self._troubles: list[tuple[Fault, list[Case]]] = []
        self._stopping = self._time_is_up = False
        self._identities = chance(plan.seed, "renewed")

    async def run(self) -> Report:
        """The valid conversation, alone and beside a canary; then one case after the other."""
        began_s = trio.current_time()
        try:
            async with self._guarded():
                if not await self._begins_well():
                    return self.report
                while await self._round(began_s + self._plan.seconds):
                    await self._investigate()
                    if self.report.ended or self._time_is_up:
                        break
        finally:
            self.report.seconds = trio.current_time() - began_s
            self.report.findings.close()
            if self._process is not None:
                self.report.memory_mb = self._process.first_mb, self._process.last_mb
        return self.report

    @asynccontextmanager
    async def _guarded(self) -> AsyncIterator[None]:
        async with a_canary(self._place, self._target, self._plan.seed) as self._canary:
            yield

    # The beginning

    async def _begins_well(self) -> bool:
        """Case 0 has to pass, or nothing that fails later means anything."""
        case = draw_case(self._target, self._plan.seed, 0)
        self._count(case)
        fault = await Attack(self._place, _nobody).carry_out(case)
        if fault is None:
            fault = await self._canary.check()
            if fault is None and (fault := await self._attack(self._renewed(case))) is not None:
                fault = Fault(Oracle.STARVES, "it serves one session at a time", str(fault))
        if fault is not None:
            self._found(fault, case, repeats=True)
            self.report.ended = "the valid conversation fails, so that no other can be judged"
        return fault is None

    # Rounds

    async def _round(self, ends_at: float) -> bool:
        """Run cases until something fails; false if time or numbers are up instead."""
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
        # What came last may not have shown yet.
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
        """Look after the canary, the process and the time."""
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
                self._stopping = self._time_is_up = True
            await trio.sleep(CHECK_S)

    def _trouble(self, fault: Fault, case: Case | None) -> None:
        """Something failed: one case's own fault, or everybody's."""
        if case is not None and self.report.findings.knows(group_of(fault, case)) and fault.oracle in ALIVE:
            return
        others = [*self._in_flight.values(), *reversed(self._recent)]
        suspects = [*([case] if case else []), *(other for other in others if other is not case)]
        self._troubles.append((fault, suspects[:SUSPECTS]))
        self._stopping = True
        if fault.oracle not in ALIVE:
            self._scope.cancel()

    # Investigations

    async def _investigate(self) -> None:
        """Send the suspects again, each alone, and keep what they show."""
        for fault, suspects in self._troubles:
            if fault.oracle is Oracle.GROWS:
                self._found(
                    fault, Case("growth", "all cases up to now", (), Guid(bytes(16)), 0), repeats=False
                )
                continue
            if not await self._is_back():
                self._gone(fault, suspects)
                return
            if fault.oracle in ALIVE and self.report.findings.knows(group_of(fault, suspects[0])):
                continue
            await self._find(fault, suspects)
            if len(self.report.findings) >= self._plan.enough:
                self.report.ended = f"{self._plan.enough} findings are enough"
                return

    async def _find(self, fault: Fault, suspects: list[Case]) -> None:
        known = set(self.report.findings.first)
        suspects.sort(key=lambda case: group_of(fault, case) not in known)
        for case in (variant for suspect in suspects for variant in (calm(suspect), suspect)):
            seen = await self._tried(self._renewed(case))
            if seen is None:
                continue
            if not await self._is_back():
                self._gone(seen, [case])
                return
            if not self.report.findings.knows(group_of(seen, case)):
                await self._keep_smallest(seen, case)
            # A hanging peer keeps others waiting: what they saw was not what happened.
            if _alike(seen, fault) or fault.oracle is Oracle.HANGS or self.report.ended:
                return
        if not suspects:
            return
        if fault.oracle not in ALIVE and len(suspects) > 1:
            together = joined(suspects)
            seen = await self._tried(self._renewed(together))
            if seen is not None and _alike(seen, fault):
                await self._keep_smallest(seen, together)
                return
        if not self.report.findings.knows(group_of(fault, suspects[0])):
            self._found(fault, suspects[0], repeats=False)

    async def _keep_smallest(self, fault: Fault, case: Case) -> None:
        """Make it smaller while it shows the same, and keep it."""
        patience_s = self._place.patience_s

        async def still(candidate: Case) -> bool:
            if not await self._is_back():
                return False
            seen = await self._tried(self._renewed(candidate))
            return seen is not None and _alike(seen, fault)

        self._place.patience_s = min(patience_s, max(QUICK_S, SLOWNESS * self._canary.slowest_s))
        try:
            less = await smaller(case, still, self._plan.shrink_s)
        finally:
            self._place.patience_s = patience_s
        if not await self._is_back():
            self._gone(fault, [less])
            return
        seen = await self._tried(self._renewed(less))
        if seen is not None and _alike(seen, fault):
            fault, case = seen, less
        self._found(fault, self._renewed(case), repeats=True, group=group_of(fault, case))

    async def _tried(self, case: Case) -> Fault | None:
        """A case alone, and how everybody else fares afterwards."""
        return await self._attack(case) or await self._canary.check()

    async def _is_back(self) -> bool:
        """Whether the peer serves, as soon as it does."""
        with trio.move_on_after(self._place.patience_s):
            while True:
                if await self._canary.check() is None:
                    return True
                await trio.sleep(CHECK_S)
        return False

    def _gone(self, fault: Fault, suspects: list[Case]) -> None:
        """The peer does not come back: all that can be kept is what it was told last."""
        self.report.ended = "the peer serves nobody any more"
        if suspects:
            case = joined(reversed(suspects)) if len(suspects) > 1 else suspects[0]
            self._found(fault, case, repeats=False)

    def _found(self, fault: Fault, case: Case, *, repeats: bool, group: str = "") -> None:
        steps = tuple(replace(step, note=described(step)) for step in case.steps)
        how = case_as_how(case.with_steps(steps))
        how |= {
            "seed": self._plan.seed,
            "peer": self._place.address,
            "oracle": fault.oracle.value,
            "rule": fault.rule,
        }
        detail = "; ".join(filter(None, [fault.detail, f"{case.kind}: {case.name}"]))
        detail += "" if repeats else "; seen once, and not again when the case was sent alone"
        self.report.findings.add(Finding(group or group_of(fault, case), detail, case.data, how))

    # Cases

    async def _attack(self, case: Case) -> Fault | None:
        return await Attack(self._place, self._canary.check).carry_out(case)

    def _renewed(self, case: Case) -> Case:
        """As it was, from somebody whom the peer has never met."""
        return case.renewed(Guid(self._identities.randbytes(16)), case.sent_s)

    def _count(self, case: Case) -> None:
        self.report.cases += 1
        self.report.kinds[case.kind] += 1


def group_of(fault: Fault, case: Case) -> str:
    """What findings are grouped by: what was broken, and if that tells little of the cause, what was sent."""
    if fault.oracle in ALIVE:
        return f"{fault.oracle}: {fault.rule}"
    return f"{fault.oracle}: {fault.rule}, after {case.kind}"


def _alike(one: Fault, other: Fault) -> bool:
    """Whether two faults are the same: all ways in which a peer fails everybody at once are."""
    if one.oracle in ALIVE or other.oracle in ALIVE:
        return (one.oracle, one.rule) == (other.oracle, other.rule)
    return True


async def _nobody() -> Fault | None:
    return None


def _forever() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number
