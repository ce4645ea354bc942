"""Are breaches still found where frames are lost? A breach counts whose evidence is there: all frames that its finding
names in the whole capture. Of an OrderAck for what never came nobody can know if a world fits in which it had come by
frames that were lost: where the breach is not found, such a world is looked for, and written.

What an acknowledgment does wrong is told once, at the first of the hops that it crosses of which a capture lets be
read: with frames lost that may be another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
from tests.captures.truth.second import fits_acknowledged, rewritten
from tests.captures.truth.whole import Coverage, Whole


@dataclass
class Hunt:
    """How often a breach was planted, in how many spoilt captures its evidence was, and in how many it was found.

    unknowable: in how many of the others nobody can know of it.
    """

    planted: int = 0
    there: int = 0
    unknowable: int = 0
    found: int = 0

    @property
    def share(self) -> float:
        """Of those that can be known."""
        return self.found / (self.there - self.unknowable) if self.there > self.unknowable else 1.0


def hunt(truth: Truth, seed: int, *, percent: float, plants: int, losses: int) -> Iterator[tuple[str, Hunt]]:
    """Plant breaches of every rule in a world, lose frames, and look for them.

    Args:
        plants: how often each is planted. losses: in how many ways frames are then lost.
    """
    for code in PLANTS:
        tally = Hunt()
        for number in range(plants):
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
            for loss in range(losses):
                frames = list(spoil.lost(breached.whole.frames, percent, seed * 1_000 + number * 50 + loss))
                _look(breached, code, evidence, frames, tally)
        yield code, tally


def _look(
    truth: Truth, code: str, evidence: dict[int, list[Finding]], frames: list[Frame], tally: Hunt
) -> None:
    """Look for a breach that the whole capture shows in another, of which these frames are left."""
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
    seen = {sight.seen.number: sight.seen for sight in told.sights if sight.seen.framed}
    originals = coverage.originals(seen.values())
    found = {
        originals[finding.packet]
        for finding in told.findings
        if finding.code == code and finding.packet in seen
    }
    if not {_breach(whole, code, packet) for packet in there}.isdisjoint(
        _breach(whole, code, packet) for packet in found if packet is not None
    ):
        tally.found += 1
    elif code == "order-ack-beyond":
        tally.unknowable += fits_acknowledged(truth, coverage, told, min(there))


def _breach(whole: Whole, code: str, packet: int) -> MessageKey | int:
    """What is alike for findings of one breach."""
    seen = whole.packets[packet]
    if code == "window-exceeded":
        # One that is exceeded again and again is told where it is known how many wait.
        return seen.connection
    if code in TOLD_ONCE and isinstance(seen.packet, UserMessage):
        return message_key(seen.packet)
    return packet
