"""A ladder diagram: queue managers as columns, packets as arrows between them, from top to bottom in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from captures.decode.facts import NodeKey
from captures.decode.findings import Finding, Severity
from captures.decode.names import Names
from captures.decode.sight import Kind, Sight
from captures.decode.views.line import CLASS_NAMES
from mqproto.base.errors import UsageError
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    FinalAckBody,
    OrderAckBody,
    Ping,
    SessionHeader,
)

NANOSECONDS: Final = 1_000_000_000
PAUSE_NS: Final = NANOSECONDS
"""A silence that is longer shows as a break."""
TIME_COLUMNS: Final = 12
LEAST_SPACING: Final = 8
"""How many columns lie between two queue managers at least."""

AGAIN, WRONG, LACKS = "↻", "✗", "…"


@dataclass(slots=True)
class Arrow:
    """One packet.

    again: it crossed this hop before. missing: bytes before it are not in the capture.
    """

    time_ns: int
    number: int
    source: NodeKey
    destination: NodeKey
    kind: Kind
    text: str
    again: bool = False
    missing: bool = False
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_wrong(self) -> bool:
        """Whether a breach was found with it."""
        return any(finding.severity is Severity.FAULT for finding in self.findings)

    @property
    def marked_text(self) -> str:
        """The text after a sign for what is odd."""
        marks = (
            (WRONG if self.is_wrong else "") + (AGAIN if self.again else "") + (LACKS if self.missing else "")
        )
        return f"{marks} {self.text}" if marks else self.text


class Ladder:
    """Collects arrows, at most `limit` of them, and lays them out.

    Args:
        names: what queue managers and queues are called.
        limit: how many packets are drawn; the others are counted.
    """

    def __init__(self, names: Names, limit: int = 1_000) -> None:
        self._names = names
        self._limit = limit
        self.arrows: list[Arrow] = []
        self.left_out_count = 0

    def add(self, sight: Sight) -> None:
        """Draw one more packet."""
        if len(self.arrows) >= self._limit:
            self.left_out_count += 1
            return
        seen = sight.seen
        codes = {finding.code for finding in sight.findings}
        self.arrows.append(
            Arrow(
                seen.time_ns,
                seen.number,
                *sight.hop,
                sight.kind,
                arrow_text(sight, self._names),
                again="resend" in codes,
                missing="missing-bytes" in codes,
                findings=[each for each in sight.findings if each.code not in ("resend", "missing-bytes")],
            )
        )

    def nodes(self, label: Callable[[NodeKey], str]) -> list[str]:
        """The names of the columns, in the order in which they first sent or received."""
        ends = (key for arrow in self.arrows for key in (arrow.source, arrow.destination))
        return list(dict.fromkeys(label(key) for key in ends))

    def lines(self, label: Callable[[NodeKey], str], width: int) -> Iterator[str]:
        """The diagram as text.

        Args:
            label: what a queue manager is called, now that all is known.
            width: of the longest line, in columns.

        Raises:
            UsageError: the columns do not fit.
        """
        nodes = self.nodes(label)
        if not nodes:
            return
        room = width - TIME_COLUMNS - 2
        margin = min(len(nodes[-1]) // 2 + 1, room // 4)
        first = TIME_COLUMNS + 1 + min(len(nodes[0]) // 2 + 1, room // 4)
        spacing = (width - 1 - margin - first) // max(1, len(nodes) - 1)
        if len(nodes) > 1 and spacing < LEAST_SPACING:
            raise UsageError(
                f"{len(nodes)} queue managers do not fit into {width} columns; choose some with --node or "
                "--connection, or draw an SVG: --diagram FILE.svg"
            )
        places = {node: first + spacing * column for column, node in enumerate(nodes)}
        yield _heads(places, spacing)
        before_ns = began_ns = self.arrows[0].time_ns
        for arrow in self.arrows:
            if arrow.time_ns - before_ns > PAUSE_NS:
                pause = f"{(arrow.time_ns - before_ns) / NANOSECONDS:,.1f} s"
                yield _row(f"{pause:>{TIME_COLUMNS}}", places, "┊")
            before_ns = arrow.time_ns
            time = f"{(arrow.time_ns - began_ns) / NANOSECONDS:>{TIME_COLUMNS}.6f}"
            yield _arrow(arrow, time, places[label(arrow.source)], places[label(arrow.destination)], places)
            for finding in arrow.findings:
                text = f"{'':>{TIME_COLUMNS}} {finding}"
                yield text if len(text) <= width else f"{text[: width - 1]}…"
        if self.left_out_count:
            more = f"{self.left_out_count:,} packets more"
            yield f"{more}; choose some with --after, --kind or --connection, or raise --limit"


def arrow_text(sight: Sight, names: Names) -> str:
    """What an arrow says: as little as tells packets apart."""
    packet = sight.seen.packet
    message = sight.message
    if message is not None:
        text = _message_text(sight, names)
        return text if sight.session is None else f"{text} + {_session_text(sight.session)}"
    if isinstance(packet, EstablishConnection):
        return ("refused" if packet.refused else "welcome") if sight.answers else "establish"
    if isinstance(packet, Ping):
        return "ping refused" if packet.refused else "ping"
    if sight.session is not None:
        return _session_text(sight.session)
    if isinstance(packet, ConnectionParameters):
        return "refused" if packet.refused else "parameters"
    return sight.kind.lower()


def _message_text(sight: Sight, names: Names) -> str:
    message, body = sight.message, sight.acknowledgment
    assert message is not None
    message_class = message.properties.message_class
    verdict = CLASS_NAMES.get(message_class, f"{message_class:#x}")
    if isinstance(body, OrderAckBody):
        return f"OrderAck {body.tx_sequence_id.ordinal}/{body.tx_sequence_number}"
    if isinstance(body, FinalAckBody):
        return f"FinalAck {body.tx_sequence_id.ordinal}/{body.tx_sequence_number} {verdict}"
    if sight.kind is Kind.ADMIN_ACK:
        return verdict
    number = f" #{message.user.message_id}"
    if message.transaction is not None:
        number = f" {message.transaction.tx_sequence_id.ordinal}/{message.transaction.tx_sequence_number}"
    return f"{sight.kind.lower()}{number} {names.destination(message.user)}"


def _session_text(header: SessionHeader) -> str:
    text = f"ack {header.ack_sequence_number}"
    if flags := header.recoverable_msg_ack_flags:
        last = (header.recoverable_msg_ack_seq_number + flags.bit_length() - 1) & 0xFFFF
        text += f", saved {last}"
    return text


def _heads(places: dict[str, int], spacing: int) -> str:
    line = ""
    for node, place in places.items():
        name = node if len(node) < spacing or len(places) == 1 else f"{node[: spacing - 2]}…"
        line = line.ljust(max(0, place - len(name) // 2)) + name
    return line


def _row(left: str, places: dict[str, int], sign: str) -> str:
    cells = list(left.ljust(max(places.values()) + 1))
    for place in places.values():
        cells[place] = sign
    return "".join(cells)


def _arrow(arrow: Arrow, time: str, start: int, end: int, places: dict[str, int]) -> str:
    """One arrow with its text; what a queue manager sends to itself is written beside it."""
    line = list(_row(time, places, "│"))
    if start == end:
        return "".join(line[: start + 1]) + f"↺ {arrow.marked_text}"
    low, high = min(start, end), max(start, end)
    room = high - low - 1
    text = arrow.marked_text
    if len(text) > room - 4:
        text = text[: max(0, room - 5)] + "…"
    body = f" {text} ".center(room - 1, "─")[: room - 1] if text else "─" * (room - 1)
    line[low + 1 : high] = list(body + "►" if end > start else "◄" + body)
    return "".join(line)
