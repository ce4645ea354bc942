"""What a whole capture shows about each message, with the packets that show it: the basis for judging a damaged one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mqproto.captures.decode import Finding, Kind, Sight
from mqproto.captures.decode.analyst import subject_of
from mqproto.captures.decode.facts import Hop, MessageKey
from mqproto.captures.decode.journeys import message_key
from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.sight import MESSAGES
from mqproto.captures.files.frame import Frame
from mqproto.wire import NULL_GUID, FinalAckBody, Guid, OrderAckBody, TxSequenceId
from tests.captures.truth.saying import Decoded, Tabled, decoded, tabled
from tests.captures.truth.whole import Whole

NEGATIVE: Final = 0x8000


@dataclass
class Known:
    """What is known of one message; packets are given by their numbers in the whole capture.

    towards: the queue manager that the message goes to; the null GUID for a direct name, which leads to the end of its
        hop. Acknowledgments from others do not count.
    crossings: the packets that carried the message, each with its hop.
    arrivals: the packets that brought the message to its destination.
    order_acks, final_acks, admin_acks: the packets that report the message's outcome.
    covering: positive FinalAcks of later numbers in the sequence; they say that this message arrived, too.
    """

    key: MessageKey
    sequence: tuple[Guid, TxSequenceId, int] | None
    towards: Guid
    crossings: dict[int, Hop] = field(default_factory=dict)
    arrivals: list[int] = field(default_factory=list)
    order_acks: list[int] = field(default_factory=list)
    final_acks: list[int] = field(default_factory=list)
    admin_acks: list[int] = field(default_factory=list)
    covering: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The message's name, made of its GUID and number."""
        return identifier_text(*self.key)

    @property
    def said(self) -> list[int]:
        """Return all packets that report the message's outcome."""
        return [*self.order_acks, *self.final_acks, *self.admin_acks]

    def goes_to(self, sender: Guid) -> bool:
        """Return whether a queue manager may report that the message arrived.  [MS-MQQB] 3.1.1.6.2"""
        ends = {end for _, end in self.crossings.values()}
        return self.towards == sender or (
            self.towards == NULL_GUID and (sender in ends or any(isinstance(end, str) for end in ends))
        )


class Truth:
    """Everything that is known about a capture from which nothing is missing.

    Args:
        frames: the frames as they were read from the capture.
    """

    def __init__(self, frames: list[Frame]) -> None:
        self.whole = Whole(frames)
        self.decoded: Decoded = decoded([frames])
        self.sights: dict[int, Sight] = {
            sight.seen.number: sight for sight in self.decoded.sights if sight.seen.framed
        }
        self.messages = messages_in(self.sights)

    @cached_property
    def tabled(self) -> Tabled:
        """What the tables say about the capture."""
        with TemporaryDirectory() as folder:
            return tabled(Path(folder) / "whole", [self.whole.frames])

    @cached_property
    def found(self) -> dict[tuple[str, int], list[Finding]]:
        """The findings about the capture, keyed by code and packet."""
        found: dict[tuple[str, int], list[Finding]] = {}
        for finding in self.decoded.findings:
            found.setdefault((finding.code, finding.packet), []).append(finding)
        return found

    @cached_property
    def numbered(self) -> dict[tuple[Guid, TxSequenceId, int], Known]:
        """Return the transactional messages, keyed by sequence and number."""
        return {known.sequence: known for known in self.messages.values() if known.sequence is not None}


def messages_in(sights: dict[int, Sight]) -> dict[str, Known]:
    """Return the messages of applications, keyed by their names.

    Args:
        sights: the packets of a whole capture, keyed by their numbers.
    """
    messages: dict[MessageKey, Known] = {}
    for number, sight in sights.items():
        message = sight.message
        if message is None or sight.kind not in (*MESSAGES, Kind.REPORT):
            continue
        key, user, transaction = message_key(message), message.user, message.transaction
        known = messages.get(key)
        if known is None:
            sequence = (
                None
                if transaction is None
                else (user.source_queue_manager, transaction.tx_sequence_id, transaction.tx_sequence_number)
            )
            known = messages[key] = Known(key, sequence, user.queue_manager_address)
        known.crossings[number] = sight.hop
        if user.queue_manager_address in (sight.hop[1], NULL_GUID):
            known.arrivals.append(number)
    passing = {
        number: sight
        for number, sight in sights.items()
        if sight.message is not None
        and (header := sight.message.transaction) is not None
        and header.previous_tx_sequence_number < header.tx_sequence_number - 1
    }
    for number, sight in sights.items():
        body, message = sight.acknowledgment, sight.message
        if message is None:
            continue
        sender = message.user.source_queue_manager
        if isinstance(body, OrderAckBody):
            for known in messages.values():
                if (
                    known.sequence is not None
                    and known.goes_to(sender)
                    and known.sequence[1] == body.tx_sequence_id
                    and tells(passing, known.sequence, body.tx_sequence_number)
                    and message.user.queue_manager_address in (known.sequence[0], NULL_GUID)
                ):
                    known.order_acks.append(number)
        elif isinstance(body, FinalAckBody):
            is_positive = not message.properties.message_class & NEGATIVE
            about = messages.get((body.source_guid, body.message_id))
            if about is not None and (about.goes_to(sender) or not is_positive):
                about.final_acks.append(number)
            if is_positive:
                for known in messages.values():
                    if (
                        known.sequence is not None
                        and known.goes_to(sender)
                        and known.sequence[:2] == (body.source_guid, body.tx_sequence_id)
                        and known.sequence[2] != body.tx_sequence_number
                        and tells(passing, known.sequence, body.tx_sequence_number)
                    ):
                        known.covering.append(number)
        elif sight.kind is Kind.ADMIN_ACK and (about := messages.get(subject_of(message))) is not None:
            about.admin_acks.append(number)
    return {known.name: known for known in messages.values()}


def tells(truth: dict[int, Sight], sequence: tuple[Guid, TxSequenceId, int], number: int) -> bool:
    """Return whether an acknowledgment of a number covers a message of the same sequence.

    The message is given by its place in the sequence. It is not covered if another message, numbered at most as high as
    the acknowledged one, passes over it.
    """
    return number >= sequence[2] and not any(
        header.previous_tx_sequence_number < sequence[2] < header.tx_sequence_number <= number
        for sight in truth.values()
        if sight.message is not None
        and (header := sight.message.transaction) is not None
        and (sight.message.user.source_queue_manager, header.tx_sequence_id) == sequence[:2]
    )
