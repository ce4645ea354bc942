"""Turns a fault into a finding: finds the case that causes it, makes the case smaller, and checks whether the fault is
known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import trio

from mqproto.simulator.fuzz.findings import Findings, FuzzFinding
from mqproto.simulator.fuzz.peer.attack import Attack
from mqproto.simulator.fuzz.peer.canary import Canary
from mqproto.simulator.fuzz.peer.conduct import Fault, PeerFailure
from mqproto.simulator.fuzz.peer.lines import Place
from mqproto.simulator.fuzz.peer.smaller import calm, changed_fields, described, smaller
from mqproto.simulator.fuzz.tactics.cases import Case, case_as_how, joined
from mqproto.wire import Guid

AGAIN_S: Final = 0.05
"""The time, in seconds, between two attempts to reach a peer that has crashed."""
QUICK_S: Final = 0.2
SLOWNESS: Final = 4
"""While a case is shrunk, `patience_s` is this many times the canary's slowest acknowledgment time.

During that time, it stays between QUICK_S and its usual value. At the end, it is reset to its usual value.
"""

NAMES: Final = 8
"""The maximum number of identities under which the smallest case is sent until it shows the fault.

Each time, we wait for the peer for the whole `patience_s`.
"""

OWN: Final = (PeerFailure.HANGS, PeerFailure.WRONG)
"""The kinds of fault that a case shows by itself. Other faults concern the whole peer, and any case may have caused
them.
"""
ONCE: Final = "seen once, and not again when the case was sent alone"
GONE: Final = "not tried alone, as the peer serves nobody any more"


class Investigation:
    """Investigates faults, one after the other, while nothing else is sent.

    Args:
        dice: draws a new identity for each repetition of a case.
        shrink_s: the time, in seconds, that may be spent on making one case smaller.
        origin: the facts about the peer's place that go into every finding.
    """

    def __init__(
        self,
        place: Place,
        canary: Canary,
        findings: Findings,
        dice: random.Random,
        shrink_s: float,
        origin: dict[str, int | str],
    ) -> None:
        self.is_gone = False
        """Whether the peer no longer serves anybody, even after some time."""
        self._place = place
        self._canary = canary
        self._findings = findings
        self._dice = dice
        self._shrink_s = shrink_s
        self._origin = origin
        self._causes: list[tuple[frozenset[str], str]] = []

    def knows(self, fault: Fault, case: Case) -> bool:
        """Return whether there is already a finding of this fault. If there is, it is counted once more.

        A crash is known if this case has every cause of an earlier crash.
        """
        if fault.oracle in OWN:
            return self._findings.knows(group_of(fault, case))
        causes = causes_of(case)
        groups = (group for known, group in self._causes if known <= causes)
        return self._findings.knows(next(groups, ""))

    async def look_into(self, fault: Fault, suspects: Sequence[Case]) -> None:
        """Find the culprit among the suspects, which are ordered with the likeliest first, and keep the finding.

        Then let the peer recover.
        """
        if await self._is_back():
            await self._find(fault, suspects)
            self.is_gone = self.is_gone or not await self._is_back()
        else:
            self._keep_last(fault, suspects)

    async def _find(self, fault: Fault, suspects: Sequence[Case]) -> None:
        if not suspects or (fault.oracle in OWN and self.knows(fault, suspects[0])):
            return
        for case in (variant for suspect in suspects for variant in (calm(suspect), suspect)):
            told = self._renewed(case)
            seen = await self._shown(told)
            if seen is None:
                continue
            if not await self._is_back():
                self._keep_last(seen, [told])
                return
            if not self.knows(seen, told):
                await self._keep_smallest(seen, told)
            # A peer that hangs keeps others waiting: their faults may only be consequences.
            if self.is_gone or alike(seen, fault) or fault.oracle is PeerFailure.HANGS:
                return
        if fault.oracle not in OWN and len(suspects) > 1:
            together = self._renewed(joined(suspects))
            seen = await self._shown(together)
            if seen is not None and alike(seen, fault):
                await self._keep_smallest(seen, together)
                return
        if not self.knows(fault, suspects[0]):
            self.keep(fault, suspects[0], ONCE)

    async def tried(self, case: Case) -> Fault | None:
        """Send a case alone, under an identity that is new to the peer; return the fault, if any."""
        return await self._shown(self._renewed(case))

    async def _shown(self, case: Case) -> Fault | None:
        return await Attack(self._place, self._canary.check).carry_out(case) or await self._canary.check()

    def keep(self, fault: Fault, case: Case, remark: str = "") -> None:
        """Keep a fault and its case as a finding."""
        group = group_of(fault, case)
        if fault.oracle not in OWN:
            self._causes.append((causes_of(case), group))
        detail = "; ".join(filter(None, [fault.detail, f"{case.kind}: {case.name}", remark]))
        steps = [replace(step, note=described(step)) for step in case.steps]
        how = case_as_how(case.with_steps(steps)) | self._origin
        how |= {"oracle": fault.oracle.value, "rule": fault.rule}
        self._findings.add(FuzzFinding(group, detail, case.data, how))

    async def _keep_smallest(self, fault: Fault, case: Case) -> None:
        """Make a case smaller while it shows the same fault; keep exactly the bytes that last showed it.

        A mutation may move the identity's bytes into a field that matters, so that only some identities show the fault.
        """
        patience_s = self._place.patience_s

        async def still(candidate: Case) -> bool:
            if not await self._is_back():
                return False
            seen = await self.tried(candidate)
            return seen is not None and alike(seen, fault)

        self._place.patience_s = min(patience_s, max(QUICK_S, SLOWNESS * self._canary.slowest_s))
        try:
            less = await smaller(case, still, self._shrink_s)
        finally:
            self._place.patience_s = patience_s
        if not await self._is_back():
            self._keep_last(fault, [less])
            return
        for _ in range(NAMES):
            told = self._renewed(less)
            seen = await self._shown(told)
            if seen is not None and alike(seen, fault):
                fault, case = seen, told
                break
        if not self.knows(fault, case):
            self.keep(fault, case)

    def _keep_last(self, fault: Fault, suspects: Sequence[Case]) -> None:
        """Keep the last cases that were sent, because the peer has not come back and nothing more can be learned."""
        self.is_gone = True
        if suspects:
            together = joined(suspects[::-1]) if len(suspects) > 1 else suspects[0]
            self.keep(fault, together, GONE)

    async def _is_back(self) -> bool:
        """Return True once the peer serves the canary; return False if that takes longer than the patience."""
        with trio.move_on_after(self._place.patience_s):
            while True:
                if await self._canary.check() is None:
                    return True
                await trio.sleep(AGAIN_S)
        return False

    def _renewed(self, case: Case) -> Case:
        return case.renewed(Guid(self._dice.randbytes(16)), case.sent_s)


def group_of(fault: Fault, case: Case) -> str:
    """Return the group of a finding: the rule that was broken, or the causes if the whole peer failed."""
    if fault.oracle in OWN or fault.oracle is PeerFailure.GROWS:
        return f"{fault.oracle}: {fault.rule}"
    return f"serves nobody after {', '.join(sorted(causes_of(case)))}"


def causes_of(case: Case) -> frozenset[str]:
    """Return the possible causes: the wrong fields if exactly one packet is mutated, and otherwise the kind of the
    case.
    """
    mutated = [step for step in case.steps if step.was]
    fields = changed_fields(mutated[0]) if len(mutated) == 1 else ()
    return frozenset(fields or [case.kind])


def alike(one: Fault, other: Fault) -> bool:
    """Return whether two faults are the same. All faults of the whole peer count as the same."""
    if one.oracle in OWN or other.oracle in OWN:
        return (one.oracle, one.rule) == (other.oracle, other.rule)
    return True
