"""Are breaches still found if frames are lost? A breach counts only if its evidence remains.

The evidence is all frames that the finding in the whole capture names. A fault of an acknowledgment is reported once,
at the first hop of its way that a capture shows. If frames are lost, that may be another hop. An OrderAck that covers
too much contradicts the next OrderAck of its sender, which covers less. If only this contradiction is reported, the
breach also counts as found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from mqproto.captures import spoil
from mqproto.captures.decode import Finding
from mqproto.captures.decode.facts import MessageKey
from mqproto.captures.decode.journeys import message_key
from mqproto.captures.files.frame import Frame
from mqproto.wire import UserMessage
from tests.captures.truth.breaches import PLANTS, planted
from tests.captures.truth.claims import TOLD_ONCE
from tests.captures.truth.knowing import Truth
from tests.captures.truth.saying import decoded
from tests.captures.truth.second import rewritten
from tests.captures.truth.whole import Coverage, Whole


@dataclass
class Hunt:
    """Counts for one kind of breach.

    planted: the number of times that it was planted.
    there: the number of damaged captures that kept its evidence.
    found: the number of those captures in which it was found.
    contradicted: the number of those in which it was only reported as half of a contradiction.
    """

    planted: int = 0
    there: int = 0
    found: int = 0
    contradicted: int = 0

    def add(self, other: Hunt) -> None:
        """Add the counts of another hunt."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def share(self) -> float:
        """Return the share of the breaches with evidence that were reported."""
        return (self.found + self.contradicted) / self.there if self.there else 1.0


def hunt(truth: Truth, seed: int, times: int, codes: Iterable[str] = PLANTS) -> Iterator[tuple[str, Hunt]]:
    """Plant breaches of rules in a world, lose frames, and look for the breaches.

    Args:
        times: how many times each breach is planted. Each time, 1 % of the frames is lost in this many different ways.
    """
    for code in codes:
        tally = Hunt()
        for number in range(times):
            others = planted(truth, code, spoil.dice(seed, f"{code} {number}"))
            if not others:
                continue
            breached = Truth(rewritten(truth.whole, others))
            evidence = {
                packet: findings
                for (each, packet), findings in breached.found.items()
                if each == code and packet and (code, packet) not in truth.found
            }
            if not evidence:
                continue
            tally.planted += 1
            for loss in range(times):
                frames = list(spoil.lost(breached.whole.frames, 1, seed * 1_000 + number * 50 + loss))
                _look(breached, code, evidence, frames, tally)
        yield code, tally


def _look(
    truth: Truth, code: str, evidence: dict[int, list[Finding]], frames: list[Frame], tally: Hunt
) -> None:
    """Look for a breach in a damaged capture that has only these frames left; the whole capture shows the breach."""
    whole = truth.whole
    coverage = Coverage(whole, frames)
    there = [
        packet
        for packet, findings in evidence.items()
        if all(
            coverage.has(whole.spans[each]) for each in (packet, *findings[0].others) if each in whole.spans
        )
    ]
    if not there:
        return
    tally.there += 1
    told = decoded([frames])
    originals = coverage.originals(sight.seen for sight in told.sights if sight.seen.framed)
    wanted = {_breach(whole, code, packet) for packet in there}

    def is_told(packets: Iterable[int]) -> bool:
        return any(_breach(whole, code, each) in wanted for each in map(originals.get, packets) if each)

    if is_told(finding.packet for finding in told.findings if finding.code == code):
        tally.found += 1
    elif code == "order-ack-beyond":
        pairs = (each.others for each in told.findings if each.code == "order-ack-backwards")
        tally.contradicted += is_told(chain.from_iterable(pairs))


def _breach(whole: Whole, code: str, packet: int) -> MessageKey | int:
    """Return what the findings of one breach have in common."""
    seen = whole.packets[packet]
    if code == "window-exceeded":
        # One that is exceeded again and again is told where it is known how many wait.
        return seen.connection
    if code in TOLD_ONCE and isinstance(seen.packet, UserMessage):
        return message_key(seen.packet)
    return packet
