"""Checks whether each sentence about a damaged capture is true.

Each sentence is a claim, and is compared with the undamaged capture. A sentence about the capture itself ("23 bytes
before it are not in the capture") has to be true of the damaged capture. A sentence about the world ("number 3 did not
cross before 4") has to be true of the undamaged capture. A claim that matches no pattern is unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cached_property
from typing import Final

from mqproto.captures.decode import Finding, History, Kind, Severity
from mqproto.captures.decode.facts import MessageKey
from mqproto.captures.decode.journeys import UNTOLD, message_key
from mqproto.captures.decode.views.follow import FollowedEvent
from mqproto.captures.packets import SeenPacket
from mqproto.wire import NULL_GUID, FinalAckBody, MessageClass
from tests.captures.truth.knowing import Known, Truth
from tests.captures.truth.saying import Decoded
from tests.captures.truth.whole import Coverage

NAMED_BYTES: Final = 62
"""The number of leading bytes of a message that suffice to identify it and its destination."""
SECOND_NS: Final = 1_000_000_000
DURATION: Final = re.compile(r"−?\d[\d,.]* ?(?:ns|µs|ms|s|min|h|days)\b")
PACKET: Final = re.compile(r"#(\d+)")
LACKING: Final = re.compile(
    r"or the captures? lacks? it|the captures? (?:cannot|can not|do not|does not) (?:say|tell)"
)
"""Matches words that leave a question open because the capture may lack something."""


def _numbers(found: re.Match[str]) -> range:
    """Return the sequence numbers that a sentence names; they are in the match's first two groups."""
    first = int(found[1].replace(",", ""))
    return range(first, int((found[2] or found[1]).replace(",", "")) + 1)


TOLD_ONCE: Final = frozenset(
    {"foreign-ack", "order-ack-beyond", "order-ack-backwards", "final-ack-unknown", "final-ack-mismatch"}
)
"""The codes of faults of acknowledgments, which are reported only once for each acknowledgment.

An acknowledgment crosses several hops, and its fault is reported at its first crossing in the capture.
"""


class Verdict(Enum):
    """The result for a claim."""

    TRUE = "true"
    FALSE = "false"
    UNCHECKED = "unchecked"


def verdict(holds: bool | None) -> Verdict:
    """Convert the result of a check to a Verdict; None stands for a claim that matches no pattern."""
    if holds is None:
        return Verdict.UNCHECKED
    return Verdict.TRUE if holds else Verdict.FALSE


class Claims:
    """The claims about a damaged capture, sentence by sentence."""

    def __init__(self, truth: Truth, coverage: Coverage, said: Decoded) -> None:
        self.truth = truth
        self.coverage = coverage
        self.said = said
        self.seen: dict[int, SeenPacket] = {
            sight.seen.number: sight.seen for sight in said.sights if sight.seen.framed
        }
        self.of_no_packet = {
            finding for sight in said.sights if not sight.seen.framed for finding in sight.findings
        }
        self.original = coverage.originals(self.seen.values())
        self.place: dict[int, int] = {}  # by the whole capture's number, that of the spoilt one's first copy
        for number, whole in self.original.items():
            if whole is not None:
                self.place.setdefault(whole, number)
        self.limit = max(
            (number for number, seen in truth.whole.packets.items() if seen.frame <= coverage.last_frame),
            default=0,
        )  # the last packet that came before the spoilt capture ends

    @cached_property
    def numbered(self) -> set[int | None]:
        """Return the packets with transactional messages whose numbers the damaged capture shows."""
        return {
            self.original[sight.seen.number]
            for sight in self.said.sights
            if sight.message is not None and sight.message.transaction is not None
        }

    def then(self, packets: Iterable[int]) -> list[int]:
        """Return the packets among these that come before the end of the damaged capture."""
        return [number for number in packets if number <= self.limit]

    @cached_property
    def answered(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the session acknowledgments that first report messages as received, and as saved.

        Both are keyed by the packet of the message.
        """
        received: dict[int, int] = {}
        saved: dict[int, int] = {}
        for number, sight in self.truth.sights.items():
            for told, packets in ((received, sight.received), (saved, sight.saved)):
                for packet in packets.packets if packets is not None else ():
                    told.setdefault(packet, number)
        return received, saved

    def of_finding(self, finding: Finding) -> Verdict:
        """Return whether a note is true or, for a fault, whether the whole capture has it as well."""
        number = self.original.get(finding.packet)
        if finding in self.of_no_packet or (finding.packet and number is None):
            # Bytes that begin no packet are told by the number of the packet before them.
            same = any(
                (each.severity, each.code, each.text) == (finding.severity, finding.code, finding.text)
                for each in self.truth.decoded.findings
            )
            return verdict(same or finding.code == "missing-bytes")
        text = bare(self._renumbered(finding.text))
        for each in self.truth.found.get((finding.code, number or 0), []):
            if each.severity is finding.severity and bare(each.text) == text:
                return Verdict.TRUE
        if finding.severity is Severity.FAULT:
            return verdict(
                (finding.code, number or 0) in self.truth.found or self._is_same_fault(finding, number)
            )
        check = _NOTES.get(finding.code)
        if check is not None:
            return check(self, finding, number or 0)
        if LACKING.search(finding.text):
            return verdict(any(self.coverage.lacks(span) for span in self.truth.whole.spans.values()))
        return verdict((finding.code, number or 0) in self.truth.found)

    def _is_same_fault(self, finding: Finding, number: int | None) -> bool:
        """Whether the whole capture accuses the same acknowledgment, on any of the hops that it crosses."""
        if finding.code not in TOLD_ONCE:
            return False
        key = self._key(number)
        return any(code == finding.code and self._key(other) == key for code, other in self.truth.found)

    def _key(self, number: int | None) -> MessageKey | None:
        sight = self.truth.sights.get(number or 0)
        return None if sight is None or sight.message is None else message_key(sight.message)

    def _renumbered(self, text: str) -> str:
        return PACKET.sub(lambda found: f"#{self.original.get(int(found[1]))}", text)

    # Findings

    def missing_bytes(self, finding: Finding, number: int) -> Verdict:
        """Return whether the stated number of bytes is missing from the stream."""
        span, seen = self.truth.whole.spans[number], self.seen[finding.packet]
        lacking = self.coverage.lacks_before(span, seen.interface.number)
        found = re.search(r"([\d,]+) (?:bytes before it )?are not in the capture", finding.text)
        count = int(found[1].replace(",", "")) if found else 1
        return verdict(0 < count <= lacking)

    def address_translation(self, finding: Finding, number: int) -> Verdict:
        """Return whether the two named connections are one connection in the whole capture."""
        found = re.match(r"the connection (\S+) > (\S+) is (\S+) > (\S+), seen once more", finding.text)
        if found is None:
            return Verdict.UNCHECKED
        one, other = (self.coverage.streams_between(*found.groups()[at : at + 2]) for at in (0, 2))
        return verdict(bool(one & other))

    def caller_by_port(self, finding: Finding, number: int) -> Verdict:
        """Return whether a packet that would tell who called is missing: the request, or its answer."""
        sight = self.truth.sights.get(number)
        told = r"nothing here tells who called; by its port \S+ is taken to have been called"
        if sight is None or re.fullmatch(told, finding.text) is None:
            return Verdict.UNCHECKED
        shaken = (Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS)
        asked = [
            number
            for number, each in self.truth.sights.items()
            if each.seen.connection == sight.seen.connection and each.kind in shaken
        ]
        return verdict(not all(self.coverage.has(self.truth.whole.spans[number]) for number in asked))

    def damaged_frame(self, finding: Finding, number: int) -> Verdict:
        """Whether the named frame is the damaged one; frames are counted in the damaged capture."""
        found = re.search(r"the checksum of frame (\d+) does not fit", finding.text)
        if found is None:
            return Verdict.UNCHECKED
        return verdict("damaged" in self.coverage.frames[int(found[1]) - 1].comment)

    def resend(self, finding: Finding, number: int) -> Verdict:
        """Return True if a message had already crossed the hop and the stated reason for sending it again is right.

        If no reason is stated, return whether it had crossed the hop on another connection.
        """
        if found := re.fullmatch(rf"it crossed this hop as #(\d+), too; {UNTOLD}", finding.text):
            return verdict(self._is_on_another_connection(self.original.get(int(found[1])), number))
        found = re.fullmatch(r"it crossed this hop as #(\d+)(?:, .* before)?; (.*)", finding.text)
        earlier = self.original.get(int(found[1])) if found else None
        if found is None or earlier is None:
            return Verdict.UNCHECKED
        return verdict(self._is_again(earlier, number) and self._is_why(earlier, number, found[2]))

    def _is_again(self, earlier: int, number: int) -> bool:
        """Whether a packet has the same message as an earlier one, and crossed the same hop."""
        one, other = self.truth.sights[earlier], self.truth.sights[number]
        if one.message is None or other.message is None:
            return False
        is_same = message_key(one.message) == message_key(other.message)
        return is_same and one.hop == other.hop and earlier < number

    def _is_on_another_connection(self, one: int | None, other: int) -> bool:
        """Return whether two packets carry the same message over the same hop, but on different connections."""
        first, last = sorted((one or 0, other))
        if not first or not self._is_again(first, last):
            return False
        sights = self.truth.sights
        return sights[first].seen.connection != sights[last].seen.connection

    def _is_why(self, earlier: int, number: int, why: str) -> bool | None:
        """Whether a message was sent again for the given reason."""
        received, saved = self.answered
        one, other = self.truth.sights[earlier], self.truth.sights[number]
        assert other.message is not None
        if why == "the capture does not show why":
            return True
        if why == "its sender has another connection by now":
            return one.seen.connection != other.seen.connection
        if why == "its source sends it until its OrderAck comes":
            is_source = other.hop[0] == other.message.user.source_queue_manager
            return is_source and other.message.transaction is not None
        if found := re.fullmatch(r"it had come once more as #(\d+)", why):
            came = self.truth.sights.get(self.original.get(int(found[1])) or 0)
            return (
                came is not None
                and came.message is not None
                and message_key(came.message) == message_key(other.message)
                and came.hop[1] == other.hop[0]
            )
        if found := re.fullmatch(r"#(\d+) had said that it was (saved|received)", why):
            by = self.original.get(int(found[1])) or 0
            return 0 < (saved if found[2] == "saved" else received).get(earlier, 0) <= by
        return None

    def gap(self, finding: Finding, number: int) -> Verdict:
        """Return whether none of the stated numbers had been seen on that hop."""
        pattern = (
            r"numbers? ([\d,]+)(?:-([\d,]+))? of sequence \S+ had not been seen on this hop before [\d,]+"
        )
        found = re.fullmatch(pattern, finding.text)
        known = self.message_of(number)
        if found is None or known is None or known.sequence is None:
            return Verdict.UNCHECKED
        return verdict(not self._was_seen(known, number, _numbers(found), before=finding.packet))

    def gap_filled(self, finding: Finding, number: int) -> Verdict:
        """Return whether the stated numbers were all missing on that hop when later ones were seen, but have all been
        seen by now.
        """
        pattern = (
            r"numbers? ([\d,]+)(?:-([\d,]+))? of sequence \S+, not seen before #(\d+), "
            r"came( or are passed over)? (?:within \S+ s|\S+ s before it)"
        )
        found = re.fullmatch(pattern, finding.text)
        known = self.message_of(number)
        if found is None or known is None or known.sequence is None:
            return Verdict.UNCHECKED
        return verdict(
            not self._was_seen(known, number, _numbers(found), before=int(found[3]))
            and (bool(found[4]) or self._was_seen(known, number, _numbers(found), before=finding.packet + 1))
        )

    def _was_seen(self, known: Known, number: int, numbers: range, before: int) -> bool:
        """Return whether one of these numbers of a sequence crossed a hop before the given packet of the damaged
        capture.
        """
        assert known.sequence is not None
        hop = known.crossings[number]
        for each in numbers[:1_000]:
            other = self.truth.numbered.get((*known.sequence[:2], each))
            for packet, to in other.crossings.items() if other is not None else ():
                place = self.place.get(packet, before - 1 if packet < number else before)
                if to == hop and place < before and (packet in self.numbered or self.there([packet])):
                    return True
        return False

    def late(self, finding: Finding, number: int) -> Verdict:
        """Return whether a message's time to reach its queue was over according to this capture's clock."""
        message = self.truth.sights[number].message
        if message is None or "by the clock of the capture its time to reach its queue was over" not in (
            finding.text
        ):
            return Verdict.UNCHECKED
        end_s = message.user.sent_time_s + message.base.time_to_reach_queue_s
        return verdict(message.transaction is None and self.seen[finding.packet].time_ns > end_s * SECOND_NS)

    def unknown_sequence(self, finding: Finding, number: int) -> Verdict:
        """If a finding says that the capture has no message of a sequence, return whether this is true.

        Otherwise, return whether the finding says that the capture may lack the message.
        """
        if "of which the capture has no message" not in finding.text:
            return verdict(LACKING.search(finding.text) is not None)
        sight = self.truth.sights[number]
        body, message = sight.acknowledgment, sight.message
        if body is None or message is None:
            return Verdict.FALSE
        origin = body.source_guid if isinstance(body, FinalAckBody) else message.user.queue_manager_address
        there = (
            self.coverage.has(self.truth.whole.spans[packet])
            for (source, identifier, _), known in self.truth.numbered.items()
            if identifier == body.tx_sequence_id and origin in (source, NULL_GUID)
            for packet in known.crossings
        )
        return verdict(not any(there))

    def message_of(self, number: int) -> Known | None:
        """Return the message that a packet of the whole capture carries."""
        return next((known for known in self.truth.messages.values() if number in known.crossings), None)

    # --follow

    def of_history(self, name: str, history: History) -> Iterator[tuple[str, Verdict]]:
        """Check what --follow says about a message; yield each statement with its verdict."""
        known = self.truth.messages.get(name)
        if known is None:
            yield f"message {name}", Verdict.FALSE
            return
        for event in history.events:
            yield event.text, self._of_event(known, history, event)
        points = {each.interface for each in history.crossings.values()}
        clocks = f"times are by the clocks of {len(points)} capture points, which may differ"
        for part in history.verdict().split("; "):
            yield part, verdict(len(points) > 1) if part == clocks else self._of_end(known, part)

    def _of_event(self, known: Known, history: History, event: FollowedEvent) -> Verdict:
        number, text = self.original.get(event.packet) or 0, event.text
        received, saved = self.answered
        if re.fullmatch(rf"sent, too: {UNTOLD}(?:, hop count \d+)?", text):
            others = [each for each in known.crossings if each != number]
            return verdict(any(self._is_on_another_connection(each, number) for each in others))
        if found := re.fullmatch(r"sent(?: again)?(?:: (.*?))?(?:, hop count \d+)?", text):
            if number not in known.crossings:
                return Verdict.FALSE
            hop = known.crossings[number]
            same = [each for each, other in known.crossings.items() if each < number and other == hop]
            if "again" in text and not same:
                return Verdict.FALSE
            if not found[1]:
                return Verdict.TRUE
            there = {self.original.get(packet) for packet in history.crossings}
            shown = [each for each in same if each in there]  # Which is what the reason is told of.
            return verdict(self._is_why((shown or same)[-1], number, found[1]))
        if text.startswith("OrderAck of all up to "):
            return verdict(number in known.order_acks)
        if text.startswith("FinalAck of number "):
            return verdict(number in known.covering)
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

    def _of_end(self, known: Known, part: str) -> Verdict:
        home = any(self.truth.sights[each].hop[1] == known.key[0] for each in self.then(known.order_acks))
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
        if part.startswith("FinalAck of a later number back"):
            return verdict(self.covered_home(known))
        if part.startswith("OrderAck back"):
            return verdict(home)
        if found := re.match(r"([A-Z_]{4,}) after", part):
            return verdict(found[1] in {*self.classes(known)})
        if LACKING.search(part) or "not in the capture" in part or "not known" in part:
            return Verdict.TRUE
        return Verdict.UNCHECKED

    def classes(self, known: Known) -> Iterator[str]:
        for number in (*known.final_acks, *known.admin_acks):
            message = self.truth.sights[number].message
            if message is not None and message.properties.message_class:
                yield MessageClass(message.properties.message_class).name

    def there(self, packets: list[int]) -> bool:
        """Return whether the damaged capture has all bytes of at least one of these packets."""
        return any(self.coverage.has(self.truth.whole.spans[packet]) for packet in packets)

    def shows(self, packets: list[int]) -> bool:
        """Return whether the damaged capture has enough of at least one of these packets to identify its message."""
        return any(self.coverage.has(self.truth.whole.spans[packet], NAMED_BYTES) for packet in packets)

    def covered_home(self, known: Known) -> bool:
        """Return whether a positive FinalAck for a later number reached the message's source."""
        return any(self.truth.sights[number].hop[1] == known.key[0] for number in self.then(known.covering))


_NOTES: Final[dict[str, Callable[[Claims, Finding, int], Verdict]]] = {
    "missing-bytes": Claims.missing_bytes,
    "address-translation": Claims.address_translation,
    "caller-by-port": Claims.caller_by_port,
    "damaged-frame": Claims.damaged_frame,
    "resend": Claims.resend,
    "resend-without-need": Claims.resend,
    "gap": Claims.gap,
    "gap-filled": Claims.gap_filled,
    "late": Claims.late,
    "order-ack-unknown": Claims.unknown_sequence,
    "final-ack-unknown": Claims.unknown_sequence,
}


def bare(text: str) -> str:
    """Return a sentence without its durations, because these depend on which packets were seen."""
    return DURATION.sub("T", text)
