"""Is it so? Each sentence about a spoilt capture as a claim, held against what the whole one shows.

A sentence about the capture ("23 bytes before it are not in the capture") is true of the spoilt one; a sentence about
the world ("number 3 did not cross before 4") has to be true of the whole one. What no pattern knows is unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cached_property
from typing import Final

from captures.decode import Finding, History, Severity
from captures.packets import SeenPacket
from mqproto.wire import FinalAckBody, MessageClass
from tests.captures.truth.knowing import Known, Truth
from tests.captures.truth.saying import Decoded
from tests.captures.truth.whole import Coverage

NEGATIVE: Final = 0x8000
DURATION: Final = re.compile(r"−?\d[\d,.]* ?(?:ns|µs|ms|s|min|h|days)\b")
PACKET: Final = re.compile(r"#(\d+)")
LACKING: Final = re.compile(
    r"or the captures? lacks? it|the captures? (?:cannot|can not|do not|does not) (?:say|tell)"
)
"""Words that leave it open, where the capture lacks something."""


class Verdict(Enum):
    """What became of a claim."""

    TRUE = "true"
    FALSE = "false"
    UNCHECKED = "unchecked"


def verdict(holds: bool) -> Verdict:
    """As it is."""
    return Verdict.TRUE if holds else Verdict.FALSE


class Claims:
    """What was said of a spoilt capture, sentence by sentence."""

    def __init__(self, truth: Truth, coverage: Coverage, said: Decoded) -> None:
        self.truth = truth
        self.coverage = coverage
        self.said = said
        self.seen: dict[int, SeenPacket] = {
            sight.seen.number: sight.seen for sight in said.sights if sight.seen.framed
        }
        self.original = coverage.originals(self.seen.values())
        self.limit = max(
            (number for number, seen in truth.whole.packets.items() if seen.frame <= coverage.last_frame),
            default=0,
        )  # the last packet that came before the spoilt capture ends

    def _then(self, packets: Iterable[int]) -> list[int]:
        """Those that came before the spoilt capture ends."""
        return [number for number in packets if number <= self.limit]

    @cached_property
    def answered(self) -> tuple[dict[int, int], dict[int, int]]:
        """By the packet of a message, the session acknowledgments by which it was received, and saved, first."""
        received: dict[int, int] = {}
        saved: dict[int, int] = {}
        for number, sight in self.truth.sights.items():
            for told, packets in ((received, sight.received), (saved, sight.saved)):
                for packet in packets.packets if packets is not None else ():
                    told.setdefault(packet, number)
        return received, saved

    def of_finding(self, finding: Finding) -> Verdict:
        """Whether a note is true, or a fault one that the whole capture has."""
        number = self.original.get(finding.packet)
        if finding.packet and number is None:
            # Bytes that begin no packet are told by the number of the packet before them.
            same = any(
                each.severity is finding.severity
                for (code, _), found in self.truth.found.items()
                for each in found
                if code == finding.code
            )
            return verdict(same or finding.code == "missing-bytes")
        text = _bare(self._renumbered(finding.text))
        for each in self.truth.found.get((finding.code, number or 0), []):
            if each.severity is finding.severity and _bare(each.text) == text:
                return Verdict.TRUE
        if finding.severity is Severity.FAULT:
            return verdict((finding.code, number or 0) in self.truth.found)
        check = _NOTES.get(finding.code)
        if check is not None:
            return check(self, finding, number or 0)
        if LACKING.search(finding.text):
            return verdict(any(self.coverage.lacks(span) for span in self.truth.whole.spans.values()))
        return verdict((finding.code, number or 0) in self.truth.found)

    def _renumbered(self, text: str) -> str:
        return PACKET.sub(lambda found: f"#{self.original.get(int(found[1]))}", text)

    # Findings

    def missing_bytes(self, finding: Finding, number: int) -> Verdict:
        """So many bytes of the stream are not there."""
        span, seen = self.truth.whole.spans[number], self.seen[finding.packet]
        lacking = self.coverage.lacks_before(span, seen.interface.number)
        found = re.search(r"([\d,]+) (?:bytes before it )?are not in the capture", finding.text)
        count = int(found[1].replace(",", "")) if found else 1
        return verdict(0 < count <= lacking)

    def resend(self, finding: Finding, number: int) -> Verdict:
        """The same message crossed the same hop before; and the reason is one."""
        found = re.fullmatch(r"it crossed this hop as #(\d+)(?:, .* before)?; (.*)", finding.text)
        earlier = self.original.get(int(found[1])) if found else None
        if found is None or earlier is None:
            return Verdict.UNCHECKED
        known = self.message_of(number)
        if (
            known is None
            or earlier not in known.crossings
            or known.crossings[earlier] != known.crossings[number]
        ):
            return Verdict.FALSE
        return self.why_again(known, earlier, number, found[2])

    def why_again(self, known: Known, earlier: int, number: int, why: str) -> Verdict:
        """Why a message was sent again."""
        received, saved = self.answered
        if "does not show why" in why:
            return Verdict.TRUE
        if why == "its connection ended before a session acknowledgment came":
            return verdict(received.get(earlier, number) >= number)
        if why == "no session acknowledgment of it had been seen on that connection":
            by = received.get(earlier, number)
            return verdict(by >= number or not self.there([by]))
        if why == "its source sends it until its OrderAck comes":
            return verdict(known.sequence is not None and known.crossings[number][0] == known.key[0])
        if why == "its OrderAck had not come":
            home = [each for each in known.order_acks if each < number]
            return verdict(not any(self.truth.sights[each].hop[1] == known.key[0] for each in home))
        if found := re.fullmatch(r"it had come once more as #(\d+)", why):
            return verdict(self.original.get(int(found[1])) in known.crossings)
        if found := re.fullmatch(r"#(\d+) had said that it was (saved|received)", why):
            by = self.original.get(int(found[1])) or 0
            return verdict(0 < (saved if found[2] == "saved" else received).get(earlier, 0) <= by)
        return Verdict.UNCHECKED

    def gap(self, finding: Finding, number: int) -> Verdict:
        """None of these numbers had crossed that hop."""
        found = re.match(
            r"numbers? ([\d,]+)(?:-([\d,]+))? of sequence \S+ did not cross before", finding.text
        )
        known = self.message_of(number)
        if found is None or known is None or known.sequence is None:
            return Verdict.UNCHECKED
        first = int(found[1].replace(",", ""))
        last = int((found[2] or found[1]).replace(",", ""))
        return verdict(not self._crossed(known, number, first, last, before=number))

    def gap_filled(self, finding: Finding, number: int) -> Verdict:
        """All of these numbers have crossed that hop by now, and none before the gap was seen."""
        pattern = r"numbers? ([\d,]+)(?:-([\d,]+))? of sequence \S+, missing since #(\d+), came within"
        found = re.match(pattern, finding.text)
        known = self.message_of(number)
        if found is None or known is None or known.sequence is None:
            return Verdict.UNCHECKED
        first, last = int(found[1].replace(",", "")), int((found[2] or found[1]).replace(",", ""))
        since = self.original.get(int(found[3])) or 0
        return verdict(not self._crossed(known, number, first, last, before=since))

    def _crossed(self, known: Known, number: int, first: int, last: int, before: int) -> bool:
        assert known.sequence is not None
        hop = known.crossings[number]
        for each in range(first, min(last, first + 1_000) + 1):
            other = self.truth.numbered.get((*known.sequence[:2], each))
            if other and any(packet < before and to == hop for packet, to in other.crossings.items()):
                return True
        return False

    def unknown_sequence(self, finding: Finding, number: int) -> Verdict:
        """The capture has no message of that sequence, or lacks the one that is meant."""
        if "of which the capture has no message" not in finding.text:
            return verdict(LACKING.search(finding.text) is not None)
        body = self.truth.sights[number].acknowledgment
        if body is None:
            return Verdict.FALSE
        there = (
            self.coverage.has(self.truth.whole.spans[packet])
            for (_, identifier, _), known in self.truth.numbered.items()
            if identifier == body.tx_sequence_id
            for packet in known.crossings
        )
        return verdict(not any(there))

    def message_of(self, number: int) -> Known | None:
        """The message that a packet of the whole capture carries."""
        return next((known for known in self.truth.messages.values() if number in known.crossings), None)

    # --follow

    def of_history(self, name: str, history: History) -> Iterator[tuple[str, Verdict]]:
        """What --follow says of a message."""
        known = self.truth.messages.get(name)
        if known is None:
            yield f"message {name}", Verdict.FALSE
            return
        for event in history.events:
            yield event.text, self._of_event(known, self.original.get(event.packet) or 0, event.text)
        for part in history.verdict().split("; "):
            yield part, self._of_end(known, part)

    def _of_event(self, known: Known, number: int, text: str) -> Verdict:
        received, saved = self.answered
        if found := re.fullmatch(r"sent(?: again)?(?:: (.*?))?(?:, hop count \d+)?", text):
            if number not in known.crossings:
                return Verdict.FALSE
            if not found[1]:
                return Verdict.TRUE
            earlier = [each for each, hop in known.crossings.items() if each < number]
            same = [each for each in earlier if known.crossings[each] == known.crossings[number]]
            return self.why_again(known, same[-1], number, found[1]) if same else Verdict.FALSE
        if text.startswith("OrderAck of all up to "):
            return verdict(number in known.order_acks)
        if text.startswith("FinalAck of number "):
            return verdict(self._covers(known, number))
        if text.startswith("FinalAck "):
            return verdict(number in known.final_acks)
        if text.startswith("administration acknowledgment "):
            return verdict(number in known.admin_acks)
        if found := re.fullmatch(r"session acknowledgment: #(\d+) (received|saved|received, saved)", text):
            packet = self.original.get(int(found[1])) or 0
            return verdict(
                ("received" not in found[2] or 0 < received.get(packet, 0) <= number)
                and ("saved" not in found[2] or 0 < saved.get(packet, 0) <= number)
            )
        return Verdict.UNCHECKED

    def _covers(self, known: Known, number: int) -> bool:
        """Whether a packet is a positive FinalAck of a later number of its sequence."""
        sight = self.truth.sights.get(number)
        body = None if sight is None else sight.acknowledgment
        if (
            sight is None
            or sight.message is None
            or known.sequence is None
            or not isinstance(body, FinalAckBody)
        ):
            return False
        is_positive = not sight.message.properties.message_class & NEGATIVE
        return (
            is_positive
            and body.tx_sequence_id == known.sequence[1]
            and body.tx_sequence_number > known.sequence[2]
        )

    def _of_end(self, known: Known, part: str) -> Verdict:
        home = any(self.truth.sights[each].hop[1] == known.key[0] for each in self._then(known.order_acks))
        if part.startswith("reached its destination"):
            return verdict(bool(known.arrivals))
        if part.startswith("last seen on its way to"):
            return Verdict.TRUE
        if part.startswith("no OrderAck came back"):
            return verdict(not home)
        if part.startswith("no OrderAck was seen to come back"):
            at_source = [each for each in known.order_acks if self.truth.sights[each].hop[1] == known.key[0]]
            return verdict(not self.there(at_source))
        if part.startswith("an OrderAck for it was seen"):
            return verdict(self.there(known.order_acks))
        if part.startswith("OrderAck back"):
            return verdict(home)
        if part.startswith("FinalAck of a later number back"):
            sights = self.truth.sights.items()
            return verdict(
                any(each.hop[1] == known.key[0] and self._covers(known, at) for at, each in sights)
            )
        if found := re.match(r"([A-Z_]{4,}) after", part):
            return verdict(found[1] in {*self._classes(known)})
        if LACKING.search(part) or "not in the capture" in part or "not known" in part:
            return Verdict.TRUE
        return Verdict.UNCHECKED

    def _classes(self, known: Known) -> Iterator[str]:
        for number in (*known.final_acks, *known.admin_acks):
            message = self.truth.sights[number].message
            if message is not None and message.properties.message_class:
                yield MessageClass(message.properties.message_class).name

    # Stories

    def of_story(self, name: str, sentences: list[str]) -> Iterator[tuple[str, Verdict]]:
        """What the report says of a message, its verdict first."""
        known = self.truth.messages.get(name)
        whole = {
            _bare(each) for sentence in self.truth.tabled.stories.get(name, []) for each in _clauses(sentence)
        }
        for sentence in sentences:
            for clause in _clauses(sentence):
                if known is None:
                    yield clause, Verdict.FALSE
                elif _bare(clause) in whole:
                    yield clause, Verdict.TRUE
                else:
                    yield clause, self._of_clause(known, clause)

    def _of_clause(self, known: Known, clause: str) -> Verdict:
        for pattern, check in _CLAUSES:
            if found := re.search(pattern, clause):
                return verdict(check(self, known, found))
        return Verdict.UNCHECKED

    def there(self, packets: list[int]) -> bool:
        """Whether the spoilt capture has all bytes of one of these packets."""
        return any(self.coverage.has(self.truth.whole.spans[packet]) for packet in packets)

    def told_home(self, known: Known) -> bool:
        """Whether its source heard that it came."""
        return any(self.truth.sights[each].hop[1] == known.key[0] for each in known.said)

    def all_missing(self, known: Known, text: str, before: int | None = None) -> bool:
        """Whether none of these numbers of its sequence came to its destination, ever or by then."""
        if known.sequence is None:
            return False
        for first, last in re.findall(r"([\d,]+)(?:–([\d,]+))?", text):
            low = int(first.replace(",", ""))
            for number in range(low, int((last or first).replace(",", "")) + 1):
                other = self.truth.numbered.get((*known.sequence[:2], number))
                if other and any(before is None or each < before for each in self._then(other.arrivals)):
                    return False
        return True

    def never_left(self, known: Known, label: str) -> bool:
        """Whether nobody of that name has sent it on by then."""
        host = label.split(":")[0] + ":"
        return not any(
            self.truth.sights[number].source.startswith(host) for number in self._then(known.crossings)
        )

    def never_answered(self, known: Known, label: str) -> bool:
        """Whether no crossing to that end was acknowledged by then."""
        received, _ = self.answered
        to = [number for number in known.crossings if self.truth.sights[number].destination == label]
        return not any(self._then([received[number]]) for number in to if number in received)

    def negative(self, known: Known) -> bool:
        """Whether somebody refused it."""
        return any(MessageClass[each] & NEGATIVE for each in self._classes(known))


_NOTES: Final[dict[str, Callable[[Claims, Finding, int], Verdict]]] = {
    "missing-bytes": Claims.missing_bytes,
    "resend": Claims.resend,
    "resend-without-need": Claims.resend,
    "gap": Claims.gap,
    "gap-filled": Claims.gap_filled,
    "order-ack-unknown": Claims.unknown_sequence,
    "final-ack-unknown": Claims.unknown_sequence,
}
_CLAUSES: Final[list[tuple[str, Callable[[Claims, Known, re.Match[str]], bool]]]] = [
    (
        r"^It came to its destination.*which has to hold it: of its sequence, (.*) never came",
        lambda claims, known, found: bool(known.arrivals) and claims.all_missing(known, found[1]),
    ),
    (
        r"^It came to its destination.*its source was told so",
        lambda claims, known, found: bool(known.arrivals) and claims.told_home(known),
    ),
    (r"^It came to its destination", lambda claims, known, found: bool(known.arrivals)),
    (
        r"^Nothing more was said of it in these captures",
        lambda claims, known, found: not claims.there(known.said),
    ),
    (r"^Its destination said that it came", lambda claims, known, found: bool(known.said)),
    (r"^The captures do not show it come", lambda claims, known, found: not claims.there(known.arrivals)),
    (r"^It (expired|was refused)", lambda claims, known, found: claims.negative(known)),
    (r"^It was last seen", lambda claims, known, found: True),
    (r"^It (did not ask|asked) to be kept", lambda claims, known, found: True),
    (
        r"^(\S+) answered for it, and has it: it did not send it on",
        lambda claims, known, found: claims.never_left(known, found[1]),
    ),
    (
        r"^\S+ sent it to (\S+) .*no answer came",
        lambda claims, known, found: claims.never_answered(known, found[1]),
    ),
    (r"^Whether it went on, the captures cannot say: ", lambda claims, known, found: True),
    (r"^The captures lack some of the traffic", lambda claims, known, found: True),
    (r"^went from ", lambda claims, known, found: bool(known.crossings)),
    (
        r" answered for it$",
        lambda claims, known, found: any(number in claims.answered[0] for number in known.crossings),
    ),
    (r"^came to \S+ again", lambda claims, known, found: len(known.crossings) > 1),
    (
        r"had to hold it: of its sequence, (.*) had not come",
        lambda claims, known, found: (
            bool(known.arrivals) and claims.all_missing(known, found[1], before=min(known.arrivals))
        ),
    ),
    (r"^all before it had come", lambda claims, known, found: bool(known.arrivals)),
    (r"^its source got the OrderAck", lambda claims, known, found: claims.told_home(known)),
    (r"^an OrderAck for it was seen", lambda claims, known, found: bool(known.order_acks)),
    (r"^a FinalAck said (\S+)", lambda claims, known, found: found[1] in set(claims._classes(known))),
    (
        r"^an administration acknowledgment said (\S+)",
        lambda claims, known, found: found[1] in set(claims._classes(known)),
    ),
]
"""What stories say, the first pattern that fits."""


def _bare(text: str) -> str:
    """Without durations, which depend on which packets were seen."""
    return DURATION.sub("T", text)


def _clauses(sentence: str) -> list[str]:
    return [each for each in re.split(r"(?<=[a-z)]\.) (?=[A-Z])", sentence) if each]
