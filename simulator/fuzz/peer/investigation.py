"""Which case it was, how little of it is enough, and whether that is known: from a fault to a finding."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import trio

from mqproto.simulator.fuzz.findings import Finding, Findings
from mqproto.simulator.fuzz.peer.attack import Attack
from mqproto.simulator.fuzz.peer.canary import Canary
from mqproto.simulator.fuzz.peer.conduct import Fault, Oracle
from mqproto.simulator.fuzz.peer.lines import Place
from mqproto.simulator.fuzz.peer.smaller import calm, changed_fields, described, smaller
from mqproto.simulator.fuzz.tactics.cases import Case, case_as_how, joined
from mqproto.wire import Guid

AGAIN_S: Final = 0.05
"""From one try to reach a peer that has crashed to the next."""
QUICK_S: Final = 0.2
SLOWNESS: Final = 4
"""While a case is made smaller, what a peer owes is waited for no longer than this many times what it took at most to
acknowledge a message of the canary, and not less than QUICK_S; at the end the whole patience is waited for."""

NAMES: Final = 8
"""How many names the smallest case is told under, with the whole patience, until one shows the fault again."""

OWN: Final = (Oracle.HANGS, Oracle.WRONG)
"""Faults that a case sees itself. The others are of the whole peer, and any case may have caused them."""
ONCE: Final = "seen once, and not again when the case was sent alone"
GONE: Final = "not tried alone, as the peer serves nobody any more"


class Investigation:
    """Looks into faults, one after the other, while nothing else is sent.

    Args:
        dice: for the names of those who tell a case anew.
        shrink_s: how long one case may be made smaller.
        origin: what every finding says of where it was found.
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
        """Whether the peer serves nobody any more, not even after some time."""
        self._place = place
        self._canary = canary
        self._findings = findings
        self._dice = dice
        self._shrink_s = shrink_s
        self._origin = origin
        self._causes: list[tuple[frozenset[str], str]] = []

    def knows(self, fault: Fault, case: Case) -> bool:
        """Whether there is a finding of this fault; then it is counted.

        A crash is known if all that caused an earlier one is wrong with this case, too.
        """
        if fault.oracle in OWN:
            return self._findings.knows(group_of(fault, case))
        causes = causes_of(case)
        groups = (group for known, group in self._causes if known <= causes)
        return self._findings.knows(next(groups, ""))

    async def look_into(self, fault: Fault, suspects: Sequence[Case]) -> None:
        """Find which of the suspects it was, the likeliest first, and keep what it shows; then let the peer recover."""
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
            # A peer that hangs keeps others waiting: what they saw was not what happened.
            if self.is_gone or alike(seen, fault) or fault.oracle is Oracle.HANGS:
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
        """What a case leads to when it is sent alone, by somebody whom the peer has never met."""
        return await self._shown(self._renewed(case))

    async def _shown(self, case: Case) -> Fault | None:
        return await Attack(self._place, self._canary.check).carry_out(case) or await self._canary.check()

    def keep(self, fault: Fault, case: Case, remark: str = "") -> None:
        """Make a finding of it."""
        group = group_of(fault, case)
        if fault.oracle not in OWN:
            self._causes.append((causes_of(case), group))
        detail = "; ".join(filter(None, [fault.detail, f"{case.kind}: {case.name}", remark]))
        steps = [replace(step, note=described(step)) for step in case.steps]
        how = case_as_how(case.with_steps(steps)) | self._origin
        how |= {"oracle": fault.oracle.value, "rule": fault.rule}
        self._findings.add(Finding(group, detail, case.data, how))

    async def _keep_smallest(self, fault: Fault, case: Case) -> None:
        """Make it smaller for as long as it shows the same, and keep that, byte for byte as it was seen to.

        A mutation may move whoever tells the case into a field that counts. Then only some names show the fault.
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
        """The peer does not come back: all that can be kept is what it was told last."""
        self.is_gone = True
        if suspects:
            together = joined(suspects[::-1]) if len(suspects) > 1 else suspects[0]
            self.keep(fault, together, GONE)

    async def _is_back(self) -> bool:
        """Whether the peer serves, as soon as it does."""
        with trio.move_on_after(self._place.patience_s):
            while True:
                if await self._canary.check() is None:
                    return True
                await trio.sleep(AGAIN_S)
        return False

    def _renewed(self, case: Case) -> Case:
        return case.renewed(Guid(self._dice.randbytes(16)), case.sent_s)


def group_of(fault: Fault, case: Case) -> str:
    """What findings are grouped by: what was broken; if the whole peer failed, what did it."""
    if fault.oracle in OWN or fault.oracle is Oracle.GROWS:
        return f"{fault.oracle}: {fault.rule}"
    return f"serves nobody after {', '.join(sorted(causes_of(case)))}"


def causes_of(case: Case) -> frozenset[str]:
    """What may have done it: the fields that are wrong if one packet is, or else the kind of the case."""
    mutated = [step for step in case.steps if step.was]
    fields = changed_fields(mutated[0]) if len(mutated) == 1 else ()
    return frozenset(fields or [case.kind])


def alike(one: Fault, other: Fault) -> bool:
    """Whether two faults are the same: all ways in which a peer fails everybody at once are."""
    if one.oracle in OWN or other.oracle in OWN:
        return (one.oracle, one.rule) == (other.oracle, other.rule)
    return True
