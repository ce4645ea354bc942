"""A ladder diagram: queue managers are columns, and packets are arrows between them, in order from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from mqproto.captures.decode.facts import NodeKey
from mqproto.captures.decode.findings import Finding, Severity
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sight import Kind, Sight
from mqproto.captures.decode.views.arrows import Label, Wording, wording
from mqproto.captures.decode.views.links import Happening, happenings
from mqproto.captures.drawing import characters
from mqproto.captures.drawing.ladder import AGAIN, LACKS, WRONG, Break, Pause, Row, Rung, Span
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.net.turns import Turn

NANOSECONDS: Final = 1_000_000_000
PAUSE_NS: Final = NANOSECONDS
"""The longest silence, in nanoseconds, that is not shown as a break."""
FOLDED_LEAST: Final = 3
"""If at least this many equal packets follow one another, they are drawn as one row."""
_STYLES: Final = {
    Kind.PING: "handshake",
    Kind.ENCRYPTED: "handshake",
    Kind.CUT: "handshake",
    Kind.ESTABLISH_CONNECTION: "handshake",
    Kind.CONNECTION_PARAMETERS: "handshake",
    Kind.SESSION_ACK: "session",
    Kind.ORDER_ACK: "acknowledgment",
    Kind.FINAL_ACK: "acknowledgment",
    Kind.ADMIN_ACK: "acknowledgment",
    Kind.REPORT: "acknowledgment",
    Kind.MALFORMED: "wrong",
}


@dataclass(slots=True)
class Arrow:
    """One packet, drawn as an arrow.

    again: whether its message crossed this hop before.
    missing: whether the capture lacks bytes before it.
    """

    time_ns: int
    number: int
    source: NodeKey
    destination: NodeKey
    kind: Kind
    said: Wording
    again: bool = False
    missing: bool = False
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_wrong(self) -> bool:
        """Whether the packet revealed a breach."""
        return any(finding.severity is Severity.FAULT for finding in self.findings)

    @property
    def marks(self) -> str:
        """Signs for everything that is odd about the packet."""
        return WRONG * self.is_wrong + AGAIN * self.again + LACKS * self.missing

    def is_like(self, other: Arrow) -> bool:
        """Whether two arrows may share one row, because they have the same label and marks."""
        if self.findings or other.findings or self.missing or other.missing:
            return False
        ours, theirs = self.said, other.said
        return (
            (self.kind, self.source, self.destination, self.again, ours.heads, ours.owner, len(ours.tails))
            == (other.kind, other.source, other.destination, other.again, theirs.heads, theirs.owner, len(theirs.tails))
            and (self.kind is Kind.SESSION_ACK or ours.tails == theirs.tails)
        )  # fmt: skip


class Picture(NamedTuple):
    """The elements of a picture."""

    columns: list[str]
    rows: list[Row]
    gone: list[Span]


class Ladder:
    """Collects arrows, at most `limit` of them, and lays them out.

    Args:
        names: the names of queue managers and queues.
        limit: how many packets are drawn; the others are only counted.
        turns: the beginnings and ends of connections; the list may still grow.
        wanted: a function that returns whether to draw a turn.
        unfold: whether to draw each of several equal packets in a row of its own.
    """

    def __init__(
        self,
        names: Names,
        limit: int = 1_000,
        turns: Sequence[Turn] = (),
        wanted: Callable[[Turn], bool] = lambda _: True,
        *,
        unfold: bool = False,
    ) -> None:
        self._names = names
        self._limit = limit
        self._turns = turns
        self._wanted = wanted
        self._unfold = unfold
        self._ends: dict[Endpoint, NodeKey] = {}
        self._connections: dict[int, tuple[NodeKey, NodeKey]] = {}
        self.arrows: list[Arrow] = []
        self.left_out_count = 0

    def add(self, sight: Sight) -> None:
        """Draw one more packet."""
        if len(self.arrows) >= self._limit:
            self.left_out_count += 1
            return
        seen = sight.seen
        codes = {finding.code for finding in sight.findings}
        self._ends[seen.source], self._ends[seen.destination] = sight.hop
        self._connections[seen.connection] = sight.hop
        self.arrows.append(
            Arrow(
                seen.time_ns,
                seen.number,
                *sight.hop,
                sight.kind,
                wording(sight, self._names),
                again="resend" in codes,
                missing="missing-bytes" in codes,
                findings=[each for each in sight.findings if each.code not in ("resend", "missing-bytes")],
            )
        )

    def nodes(self, label: Label) -> list[str]:
        """Return the names of the columns, in the order in which these queue managers first sent or received."""
        ends = (key for arrow in self.arrows for key in (arrow.source, arrow.destination))
        return list(dict.fromkeys(label(key) for key in ends))

    def picture(self, label: Label) -> Picture:
        """Return the columns and rows to draw, from top to bottom.

        Args:
            label: a function that returns the name of a queue manager, now that everything is known.
        """
        if not self.arrows:
            return Picture([], [], [])
        columns = self.nodes(label)
        place = {name: number for number, name in enumerate(columns)}
        ends = {end: place[label(key)] for end, key in self._ends.items()}
        last_ns = max(arrow.time_ns for arrow in self.arrows) if self.left_out_count else None
        known = {
            number: (place[label(one)], place[label(other)])
            for number, (one, other) in self._connections.items()
        }
        found = happenings(self._turns, ends, self._wanted, last_ns, known)
        items: list[Arrow | Happening] = (
            sorted([*found, *self.arrows], key=_order) if found else [*self.arrows]
        )
        began_ns = next(item.time_ns for item in items if isinstance(item, Arrow) or not item.is_back)
        rows: list[Row] = []
        gone: list[Span] = []
        away: dict[int, tuple[int, int]] = {}
        before_ns = began_ns
        for run in self._runs(items):
            first, last = run[0], run[-1]
            if isinstance(first, Happening) and first.is_back and first.start not in away:
                continue
            if first.time_ns - before_ns > PAUSE_NS:
                rows.append(Pause(f"{(first.time_ns - before_ns) / NANOSECONDS:,.1f} s later"))
            before_ns = last.time_ns
            time, until = (f"{(each.time_ns - began_ns) / NANOSECONDS:.6f}" for each in (first, last))
            until = "" if until == time else until
            if isinstance(first, Arrow):
                start, end = place[label(first.source)], place[label(first.destination)]
                for column in away.keys() & {start, end}:
                    gone.append(Span(column, away.pop(column)[0], len(rows)))
                arrows = [each for each in run if isinstance(each, Arrow)]
                rows.append(_rung(arrows, label, time, until, start, end))
                continue
            if first.is_back:
                row, since_ns = away.pop(first.start)
                gone.append(Span(first.start, row, len(rows)))
                text = f"back after {(first.time_ns - since_ns) / NANOSECONDS:,.1f} s"
                rows.append(Break(time, first.start, first.start, text, is_cut=False))
                continue
            if first.leaves and first.start not in away:
                away[first.start] = (len(rows), first.time_ns)
            rows.append(
                Break(
                    time,
                    first.start,
                    first.end,
                    first.text,
                    first.is_cut,
                    len(run),
                    until,
                    directed=first.directed,
                )
            )
        gone += [Span(column, row, len(rows)) for column, (row, _) in away.items()]
        return Picture(columns, rows, gone)

    def lines(self, label: Label, width: int) -> Iterator[str]:
        """Yield the diagram as text.

        Args:
            label: a function that returns the name of a queue manager, now that everything is known.
            width: the largest number of columns in a line.

        Raises:
            UsageError: the columns do not fit.
        """
        columns, rows, gone = self.picture(label)
        yield from characters.lines(columns, rows, width, gone)
        if self.left_out_count:
            more = f"{self.left_out_count:,} packets more"
            yield f"{more}; choose some with --since, --kind or --connection, or raise --limit"

    def _runs(self, items: Sequence[Arrow | Happening]) -> Iterator[list[Arrow | Happening]]:
        """Yield each run of equal, consecutive items as one list if it is long enough.

        The items of a shorter run are yielded one by one, each in a list of its own.
        """
        run: list[Arrow | Happening] = []
        for item in items:
            if run and not _alike(run[-1], item):
                yield from self._folded(run)
                run = []
            run.append(item)
        yield from self._folded(run)

    def _folded(self, run: list[Arrow | Happening]) -> Iterator[list[Arrow | Happening]]:
        least = FOLDED_LEAST if isinstance(run[0], Arrow) else 2
        if self._unfold or len(run) < least:
            yield from ([each] for each in run)
        else:
            yield run


def _order(item: Arrow | Happening) -> tuple[int, bool]:
    return item.time_ns, isinstance(item, Happening)


def _alike(one: Arrow | Happening, other: Arrow | Happening) -> bool:
    if isinstance(one, Arrow) and isinstance(other, Arrow):
        return one.is_like(other) and other.time_ns - one.time_ns <= PAUSE_NS
    if isinstance(one, Happening) and isinstance(other, Happening):
        return one._replace(time_ns=0) == other._replace(time_ns=0)
    return False


def _rung(arrows: list[Arrow], label: Label, time: str, until: str, start: int, end: int) -> Rung:
    first, last = arrows[0], arrows[-1]
    numbers = [each.said.number for each in arrows if each.said.number is not None]
    consecutive = all(later == one + 1 for one, later in pairwise(numbers))
    several = len(arrows) > 1
    said = (
        first.said if not several or first.kind is not Kind.SESSION_ACK else first.said._replace(tails=("",))
    )
    texts = said.texts(label, last.said.number if several else None, consecutive=consecutive)
    hints = [f"#{first.number}" + (f"-#{last.number}" if several else ""), *map(str, first.findings)]
    hints += ["crossed this hop before"] * first.again
    hints += ["bytes before it are not in the capture"] * first.missing
    return Rung(
        time,
        start,
        end,
        "wrong" if first.is_wrong else _STYLES.get(first.kind, "message"),
        texts[0],
        hints,
        first.again,
        texts[1:],
        len(arrows),
        until,
        first.marks,
        list(map(str, first.findings)),
    )
