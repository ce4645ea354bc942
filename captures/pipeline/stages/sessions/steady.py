"""Judges fault-free stretches of sessions, taking many packets of one connection at once.

Between the handshake and the first fault, a session has only messages and acknowledgments whose counts are correct,
increase, and stay within the window. In such packets the rules of `mqproto.captures.decode.sessions` find nothing, and
counting is enough to tell which acknowledgment covers which message. If any packet is different, this module does
nothing, and the rules judge the packets one by one.

Counts are 16 bits wide and wrap around. Here the last message before these packets is number 0, and later ones are
counted from there. Earlier ones that still wait for an acknowledgment have lower numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.row import EXPRESS
from mqproto.captures.decode.sessions.connections import Connection, Stage
from mqproto.captures.decode.sessions.half import MAY_FOLLOW, OUTSTANDING_LIMIT, Half, Sent, Step, ahead
from mqproto.captures.decode.sight import Kind
from mqproto.captures.pipeline.source.octets import Mask
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.facts import HEADER
from mqproto.captures.pipeline.tables.lists import codes, integers

NOBODY: Final = -1
_OF_ALL: Final = ("number", "time_ns", "size_bytes", "position")
LEAST: Final = 128
"""The minimum number of consecutive packets of a connection that are worth taking at once."""
MOST: Final = OUTSTANDING_LIMIT // 2
"""The maximum number of packets to take at a time. Counts wrap around, so with more messages, an acknowledgment could
mean several of them.
"""
FAR: Final = 0x4000
"""The limit for how far an acknowledgment of saved messages may go back.

Counts wrap around, so a longer step back could also be a step forward.
"""


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets as columns.

    is_message, recoverable: whether the packet is a UserMessage, and whether it is a recoverable one.
    has_header: whether the packet has a SessionHeader; the columns after this one are the fields of the header.
    """

    number: Integers
    time_ns: Integers
    size_bytes: Integers
    position: Integers
    is_message: Mask
    recoverable: Mask
    has_header: Mask
    ack_number: Integers
    saved_first: Integers
    saved_flags: Integers
    sent_count: Integers
    recoverable_sent_count: Integers
    window_size: Integers

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Packets:
        """Return the columns of a batch with SESSION_COLUMNS."""
        delivery = batch.column("delivery")
        masks = (
            pc.is_valid(delivery),
            pc.fill_null(pc.not_equal(delivery, EXPRESS), False),
            pc.is_valid(batch.column("ack_number")),
        )
        columns: list[Any] = [integers(batch, name) for name in _OF_ALL]
        columns += (mask.to_numpy(zero_copy_only=False) for mask in masks)
        columns += (integers(batch, name).astype(np.int64) for name in HEADER)
        return cls(*columns)

    def take(self, rows: Integers) -> Packets:
        """Return some of the packets."""
        return Packets(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Answers:
    """The acknowledgments of one end's messages, either all as received or all as saved.

    waiting: earlier messages that still wait for an acknowledgment, the oldest first.
    rows: the rows of the messages among these packets.
    headers: the rows of the other end's SessionHeaders.
    covered: for each header, the last message that it or a header before it covers.
    """

    waiting: list[Sent]
    rows: Integers
    headers: Integers
    covered: Integers

    def by(self) -> Integers:
        """Return, for each message, the row of the first header that covers it, or NOBODY.

        Waiting messages come first.
        """
        each = np.arange(1 - len(self.waiting), len(self.rows) + 1)
        return np.append(self.headers, NOBODY)[np.searchsorted(self.covered, each)]

    def before(self) -> Integers:
        """Return, for each header, the last message that the headers before it cover."""
        return np.append(-len(self.waiting), self.covered)[:-1]

    def packets(self, number: Integers, message: Integers) -> Integers:
        """Return the packet numbers of some messages."""
        every = np.append([sent.packet for sent in self.waiting], number[self.rows]).astype(np.int64)
        found: Integers = every[message + len(self.waiting) - 1]
        return found


@dataclass(frozen=True, slots=True)
class Steady:
    """The messages of one end, and the other end's acknowledgments of them."""

    received: Answers
    saved: Answers


def divide(batch: pa.RecordBatch, packets: Packets) -> tuple[Integers, list[Integers]]:
    """Return the rows to take one by one, and the groups of rows that may be taken at once.

    The groups are sorted by their first rows.
    """
    is_ack = pc.equal(batch.column("kind"), str(Kind.SESSION_ACK)).to_numpy(zero_copy_only=False)
    lacks = (
        integers(batch, "missing_bytes") | integers(batch, "skipped_bytes") | integers(batch, "cut_bytes")
    ) != 0
    lacks |= batch.column("ahead").to_numpy(zero_copy_only=False)
    usual = (packets.is_message | is_ack) & ~lacks
    connection = codes(batch, ("series", "connection", "interface"))
    order = np.argsort(connection, kind="stable")
    begins = np.diff(connection[order], prepend=-1) != 0
    begins[1:] |= usual[order[1:]] != usual[order[:-1]]
    bounds = np.append(np.flatnonzero(begins), len(order))
    some = usual[order[bounds[:-1]]] & (np.diff(bounds) >= LEAST) if len(order) else np.zeros(0, dtype=bool)
    together = [
        rows
        for place in np.flatnonzero(some).tolist()
        for rows in np.split(
            order[bounds[place] : bounds[place + 1]], range(MOST, bounds[place + 1] - bounds[place], MOST)
        )
    ]
    single = np.ones(len(order), dtype=bool)
    for rows in together:
        single[rows] = False
    return np.flatnonzero(single), sorted(together, key=lambda rows: int(rows[0]))


def take(connection: Connection, from_client: Mask, packets: Packets) -> tuple[Said, dict[int, Sent]] | None:
    """Take packets of a connection if all of them follow the rules.

    Returns:
        the relations of the packets to their session, and the messages that still wait for an answer,
        keyed by row; None if the rules have to judge each packet, in which case nothing has changed.
    """
    client, server = connection.client, connection.server
    if connection.stage not in (Stage.OPEN, Stage.UNKNOWN):
        return None
    window = max(client.window, server.window) if client.offered and server.offered else 0
    of_client = _look(client, from_client, packets, window)
    of_server = _look(server, ~from_client, packets, window)
    if of_client is None or of_server is None:
        return None
    said = Said(len(packets.number))
    waiting = _settle(client, from_client, of_client, packets, said)
    return said, waiting | _settle(server, ~from_client, of_server, packets, said)


def _look(half: Half, mine: Mask, packets: Packets, window: int) -> Steady | None:
    """Check one end's packets, and the other end's acknowledgments of them.

    Return None if the rules have to judge them.

    Args:
        mine: tells which packets this end has sent.
        window: the larger of both ends' windows before these packets; 0 if the capture does not show it.
    """
    if not half.is_exact or Step.TALKING not in MAY_FOLLOW[half.step]:
        return None
    assert half.sent is not None
    sent = np.flatnonzero(packets.is_message & mine)
    recoverable = np.flatnonzero(packets.recoverable & mine)
    own, theirs = np.flatnonzero(packets.has_header & mine), np.flatnonzero(packets.has_header & ~mine)
    for rows, before, counted in (
        (sent, half.sent, packets.sent_count),
        (recoverable, half.recoverable_sent, packets.recoverable_sent_count),
    ):
        if ((before + np.searchsorted(rows, own, "right")) & 0xFFFF != counted[own]).any():
            return None

    received = _received(half, sent, theirs, packets, window)
    saved = _saved(half, recoverable, theirs, packets)
    return None if received is None or saved is None else Steady(received, saved)


def _received(half: Half, sent: Integers, headers: Integers, packets: Packets, window: int) -> Answers | None:
    """Check the acknowledgments of received messages; return None if they do not follow the rules.

    They must go forward, cover only messages that were sent, and leave no more messages open than the window allows.
    """
    waiting = list(half.unacknowledged)
    assert half.sent is not None
    assert half.acknowledged is not None
    if len(waiting) + len(sent) >= OUTSTANDING_LIMIT:
        return None
    counts = [each.count for each in waiting]
    if ahead(half.sent, half.acknowledged) != len(waiting) or not _follow(counts, half.sent):
        return None
    steps = np.diff(packets.ack_number[headers], prepend=half.acknowledged) & 0xFFFF
    covered = np.cumsum(steps) - len(waiting)
    if (steps >= 0x8000).any() or (covered > np.searchsorted(sent, headers)).any():
        return None
    by_then = np.append(-len(waiting), covered)[np.searchsorted(headers, sent)]
    if window and (np.arange(1, len(sent) + 1) - by_then > window).any():
        return None
    return Answers(waiting, sent, headers, covered)


def _saved(half: Half, recoverable: Integers, headers: Integers, packets: Packets) -> Answers | None:
    """Check the acknowledgments of saved messages; return None if they do not follow the rules.

    They must leave no message out, and cover only messages that were sent.
    """
    waiting = list(half.unsaved)
    if len(waiting) + len(recoverable) >= OUTSTANDING_LIMIT:
        return None
    if not _follow([each.recoverable_count for each in waiting], half.recoverable_sent):
        return None
    headers = headers[packets.saved_flags[headers] != 0]
    flags = packets.saved_flags[headers]
    if (flags & (flags + 1)).any():
        return None
    last = packets.saved_first[headers] + np.rint(np.log2(flags + 1)).astype(np.int64) - 1
    # Unlike what is received, this may go back: it says again what has been said.
    steps = (np.diff(last, prepend=half.recoverable_sent - len(waiting)) + 0x8000 & 0xFFFF) - 0x8000
    reached = np.cumsum(steps) - len(waiting)
    covered = np.maximum.accumulate(np.append(-len(waiting), reached))[1:]
    if (np.abs(steps) >= FAR).any() or (covered - reached >= FAR).any():
        return None
    if (reached > np.searchsorted(recoverable, headers)).any():
        return None
    return Answers(waiting, recoverable, headers, covered)


def _follow(counts: list[int | None], last: int) -> bool:
    """Whether these counts are consecutive numbers that end with `last`."""
    return all(count == (last - place) & 0xFFFF for place, count in enumerate(reversed(counts)))


class Said:
    """The relations of packets to their session.

    Attributes are the columns of RELATIONS. Each has one number for each packet, or NOBODY where there is no such
    number. `received` and `saved` have three rows: the first acknowledged packet, the last one, and how many there are.
    """

    def __init__(self, count: int) -> None:
        every = np.full((11, count), NOBODY, dtype=np.int64)
        self.session_number, self.session_recoverable_number = every[:2]
        self.acknowledged_by, self.acknowledged_ns, self.saved_by = every[2:5]
        self.received, self.saved = every[5:8], every[8:11]


def _settle(half: Half, mine: Mask, steady: Steady, packets: Packets, said: Said) -> dict[int, Sent]:
    """Update one end of a session with the results of `_look`.

    Args:
        said: where to put the relations.

    Returns:
        the messages that still wait for an answer, keyed by row.
    """
    assert half.sent is not None
    for answers, by, numbers, before, ends in (
        (steady.received, said.acknowledged_by, said.session_number, half.sent, said.received),
        (steady.saved, said.saved_by, said.session_recoverable_number, half.recoverable_sent, said.saved),
    ):
        rows = answers.rows
        numbers[rows] = (before + np.arange(1, len(rows) + 1)) & 0xFFFF
        covering = answers.by()[len(answers.waiting) :]
        done = covering != NOBODY
        by[rows[done]] = packets.number[covering[done]]
        if answers is steady.received:
            said.acknowledged_ns[rows[done]] = packets.time_ns[covering[done]]
        covers = answers.covered > answers.before()
        first, last = answers.before()[covers] + 1, answers.covered[covers]
        ends[:, answers.headers[covers]] = (
            answers.packets(packets.number, first),
            answers.packets(packets.number, last),
            last - first + 1,
        )

    for sent, row in zip(steady.received.waiting, steady.received.by().tolist(), strict=False):
        if row != NOBODY:
            sent.acknowledged_by, sent.acknowledged_ns = int(packets.number[row]), int(packets.time_ns[row])
            half.unacknowledged.popleft()
    for sent, row in zip(steady.saved.waiting, steady.saved.by().tolist(), strict=False):
        if row != NOBODY:
            sent.saved_by = int(packets.number[row])
            half.unsaved.popleft()

    still = packets.is_message & mine & (said.acknowledged_by == NOBODY)
    still |= packets.recoverable & mine & (said.saved_by == NOBODY)
    new = {row: _sent(half, row, packets, said) for row in np.flatnonzero(still).tolist()}
    half.unacknowledged.extend(sent for sent in new.values() if sent.acknowledged_by is None)
    half.unsaved.extend(
        sent for sent in new.values() if sent.recoverable_count is not None and sent.saved_by is None
    )
    half.sent = half.most = (half.sent + len(steady.received.rows)) & 0xFFFF
    half.recoverable_sent = half.most_recoverable = (half.recoverable_sent + len(steady.saved.rows)) & 0xFFFF
    own = np.flatnonzero(mine)
    if len(own):
        half.step = Step.TALKING
        half.end = int(packets.position[own[-1]] + packets.size_bytes[own[-1]])
    if len(steady.received.headers):
        half.acknowledged = int(packets.ack_number[steady.received.headers[-1]])
    half.window = max(half.window, int(packets.window_size[packets.has_header & mine].max(initial=0)))
    return new


def _sent(half: Half, row: int, packets: Packets, said: Said) -> Sent:
    columns = (
        said.session_number,
        said.session_recoverable_number,
        said.acknowledged_by,
        said.acknowledged_ns,
        said.saved_by,
    )
    known = (None if column[row] == NOBODY else int(column[row]) for column in columns)
    number, recoverable_number, acknowledged_by, acknowledged_ns, saved_by = known
    return Sent(
        half,
        int(packets.number[row]),
        recoverable_number is not None,
        number,
        recoverable_number,
        number,
        recoverable_number,
        acknowledged_by,
        acknowledged_ns,
        saved_by,
        numbered=True,
    )
