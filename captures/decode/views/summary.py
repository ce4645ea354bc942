"""The content of a capture, counted in one pass: by kind, connection and queue, with findings and losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from mqproto.base.words import counted, when
from mqproto.captures.decode.findings import CODES, LACKING, Finding, Severity
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sight import Kind, Sight
from mqproto.captures.decode.views import quality
from mqproto.captures.packets import Totals
from mqproto.captures.points import Points

NANOSECONDS: Final = 1_000_000_000
COUNTED_LIMIT: Final = 10_000
"""The largest number of connections, and of queues, that are counted separately.

All others are counted together.
"""
SHOWN_LIMIT: Final = 20
"""The number of connections, and of queues, that are shown: those with the most packets."""
OTHERS: Final = "all others"


@dataclass(slots=True)
class Count:
    """A number of packets of one kind, or of messages for one queue, and their size in bytes."""

    packets: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """Count one packet or message."""
        self.packets += 1
        self.size_bytes += size_bytes


@dataclass(slots=True)
class ConnectionCount:
    """The counts of one connection; `messages` counts the UserMessages among its packets."""

    client: str
    server: str
    first_ns: int
    last_ns: int
    packets: int = 0
    messages: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Summary:
    """The counts of a whole capture.

    queues: the messages for each queue, counting resends and every hop, but not acknowledgments.
    findings: the number of findings, by severity and code.
    lacking: what the capture as a whole lacks, in words.
    first_ns, last_ns: the earliest and the latest time of a packet.
    """

    names: Names
    kinds: dict[Kind, Count] = field(default_factory=lambda: {kind: Count() for kind in Kind})
    connections: dict[int, ConnectionCount] = field(default_factory=dict)
    queues: dict[str, Count] = field(default_factory=dict)
    findings: Counter[tuple[Severity, str]] = field(default_factory=Counter)
    lacking: list[str] = field(default_factory=list)
    first_ns: int | None = None
    last_ns: int = 0

    def add(self, sight: Sight) -> None:
        """Count a packet and the findings that came with it."""
        seen = sight.seen
        size_bytes, time_ns = seen.size_bytes, seen.time_ns
        self.kinds[sight.kind].add(size_bytes)
        if self.first_ns is None:
            self.first_ns = self.last_ns = time_ns
        self.first_ns, self.last_ns = min(self.first_ns, time_ns), max(self.last_ns, time_ns)
        self._add_to_connection(sight, size_bytes, time_ns)
        if sight.message is not None and not sight.message.properties.message_class:
            name = self.names.destination(sight.message.user)
            count = self.queues.get(name)
            if count is None:
                if len(self.queues) >= COUNTED_LIMIT:
                    name = OTHERS
                count = self.queues.setdefault(name, Count())
            count.add(size_bytes)
        for finding in sight.findings:
            self.findings[finding.severity, finding.code] += 1

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Count the findings that came at the end of the capture."""
        for finding in findings:
            self.findings[finding.severity, finding.code] += 1
            if finding.code in LACKING:
                self.lacking.append(finding.text)

    @property
    def fault_count(self) -> int:
        """The number of breaches that were found."""
        return sum(count for (severity, _), count in self.findings.items() if severity is Severity.FAULT)

    def _add_to_connection(self, sight: Sight, size_bytes: int, time_ns: int) -> None:
        number = sight.seen.connection
        count = self.connections.get(number)
        if count is None:
            ends = (sight.source, sight.destination)
            if number < 0:
                ends = ("Pings", "")
            elif len(self.connections) >= COUNTED_LIMIT:
                number, ends = -2, (OTHERS, "")
            count = self.connections.setdefault(number, ConnectionCount(*ends, time_ns, time_ns))
        count.packets += 1
        count.messages += sight.message is not None
        count.size_bytes += size_bytes
        if time_ns:
            count.first_ns = min(count.first_ns or time_ns, time_ns)
            count.last_ns = max(count.last_ns or time_ns, time_ns)

    def as_json(self, totals: Totals, points: Points) -> dict[str, Any]:
        """Return all counts as JSON for programs."""
        return {
            **accounts_as_json(totals),
            "points": [quality.as_json(point) for point in points.found.values()],
            "lacks": self.lacking,
            "packets": totals.packets,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns if self.first_ns is not None else None,
            "kinds": {
                str(kind): {"packets": count.packets, "bytes": count.size_bytes}
                for kind, count in self.kinds.items()
            },
            "connections": [
                {
                    "connection": number if number >= 0 else None,
                    "client": count.client,
                    "server": count.server,
                    "packets": count.packets,
                    "messages": count.messages,
                    "bytes": count.size_bytes,
                    "first_ns": count.first_ns,
                    "last_ns": count.last_ns,
                }
                for number, count in self.connections.items()
            ],
            "queues": {
                name: {"messages": count.packets, "bytes": count.size_bytes}
                for name, count in self.queues.items()
            },
            "findings": [
                {"severity": str(severity), "code": code, "count": count}
                for (severity, code), count in sorted(self.findings.items())
            ],
            "faults": self.fault_count,
        }

    def lines(self, totals: Totals, points: Points) -> Iterator[str]:
        """Yield the counts as lines for people to read.

        The times, the account of all frames and bytes, and what the capture lacks come first.

        At most SHOWN_LIMIT connections and at most SHOWN_LIMIT queues are shown; the others are only counted.
        """
        yield from self._times(totals.packets)
        yield from accounts(totals)
        yield ""
        if points.found:
            yield from quality.lines([*points.found.values()], totals.other_frames, self.lacking)
            yield ""
        yield from self._tables()
        yield ""
        if not self.findings:
            yield quality.found_nothing(totals.other_frames)
        for (severity, code), count in sorted(self.findings.items()):
            yield f"{severity:<5} {code:<20} {count:>8,}  {CODES[code]}"

    def _times(self, packets: int) -> Iterator[str]:
        if self.first_ns is None:
            yield "no packets"
            return
        span_s = (self.last_ns - self.first_ns) / NANOSECONDS
        size_bytes = sum(count.size_bytes for count in self.kinds.values())
        yield f"from {when(self.first_ns)} to {when(self.last_ns)}, {span_s:,.3f} s"
        rate = (
            f", {packets / span_s:,.0f} packets and {size_bytes / span_s:,.0f} bytes a second"
            if span_s
            else ""
        )
        yield f"{counted(packets, 'packet')}, {size_bytes:,} bytes{rate}"

    def _tables(self) -> Iterator[str]:
        yield f"{'kind':<22} {'packets':>10} {'bytes':>15}"
        for kind, count in self.kinds.items():
            if count.packets:
                yield f"{kind:<22} {count.packets:>10,} {count.size_bytes:>15,}"
        yield ""
        connections = sorted(self.connections.items(), key=lambda item: -item[1].packets)
        wide = max([22, *(len(_ends(number, count)) for number, count in connections[:SHOWN_LIMIT])])
        yield f"{'connection':<{wide}} {'packets':>10} {'bytes':>15} {'messages':>10} {'lasted':>12}"
        for number, connection in connections[:SHOWN_LIMIT]:
            lasted_s = (connection.last_ns - connection.first_ns) / NANOSECONDS
            yield (
                f"{_ends(number, connection):<{wide}} {connection.packets:>10,} {connection.size_bytes:>15,} "
                f"{connection.messages:>10,} {lasted_s:>10,.3f} s"
            )
        yield from _left_out(len(connections), "connections")
        if self.queues:
            yield ""
            queues = sorted(self.queues.items(), key=lambda item: -item[1].packets)
            wide = max([22, *(len(name) for name, _ in queues[:SHOWN_LIMIT])])
            yield f"{'queue':<{wide}} {'messages':>10} {'bytes':>15}"
            for name, queue in queues[:SHOWN_LIMIT]:
                yield f"{name:<{wide}} {queue.packets:>10,} {queue.size_bytes:>15,}"
            yield from _left_out(len(queues), "queues")


def accounts_as_json(totals: Totals) -> dict[str, Any]:
    """Return an account of every frame and every byte as JSON for programs."""
    return {
        "frames": totals.frames,
        "segment_frames": totals.segment_frames,
        "ping_frames": totals.ping_frames,
        "other_frames": dict(totals.other_frames),
        "cut_frames": totals.cut_frames,
        "stream_bytes": totals.stream_bytes,
        "packet_bytes": totals.packet_bytes,
        "cut_packets": totals.cut_packets,
        "cut_bytes": totals.cut_bytes,
        "headless_bytes": totals.headless_bytes,
        "refused_bytes": totals.refused_bytes,
        "unexplained_bytes": totals.unexplained_bytes,
        "other_bytes": totals.other_bytes,
        "missing_bytes": totals.missing_bytes,
        "snapped_bytes": totals.snapped_bytes,
        "gaps": totals.gap_count,
        "retransmissions": totals.retransmission_count,
        "overlaps_that_differ": totals.conflict_count,
    }


def accounts(totals: Totals) -> Iterator[str]:
    """Yield the lines of an account of every frame and every byte."""
    others = sum(totals.other_frames.values())
    yield (
        f"{totals.frames:,} frames = {totals.segment_frames:,} TCP segments + {totals.ping_frames:,} Pings + "
        f"{others:,} other traffic"
    )
    kinds = sorted(totals.other_frames.items(), key=lambda item: (-item[1], item[0]))
    for reason, count in kinds[:SHOWN_LIMIT]:
        yield f"  {count:,} {reason}"
    yield from _left_out(len(kinds), "kinds of frames")
    parts = [
        (totals.packet_bytes, "of packets"),
        (totals.cut_bytes, "of packets cut off"),
        (totals.headless_bytes, "of packets whose beginning is missing"),
        (totals.refused_bytes, "where no packet begins"),
        (totals.other_bytes, "of other traffic"),
    ]
    shown = " + ".join(f"{count:,} {what}" for count, what in parts if count) or "0"
    yield f"{totals.stream_bytes:,} bytes of streams = {shown}; {totals.unexplained_bytes:,} unexplained"
    lacks = [
        (totals.missing_bytes - totals.snapped_bytes, f"bytes missing in {counted(totals.gap_count, 'gap')}"),
        (totals.snapped_bytes, "bytes cut off by the capture"),
        (totals.cut_frames, "frames cut short by the capture"),
        (totals.cut_packets, "packets read as far as their bytes go"),
        (totals.retransmission_count, "segments retransmitted"),
        (totals.untimed_frames, "frames without a time"),
        (totals.given_up_connections, "connections forgotten, as too many were open at a time"),
    ]
    if any(count for count, _ in lacks):
        yield "; ".join(f"{count:,} {what}" for count, what in lacks if count)
    conflicts = [text for code, text in totals.conflicts if code not in LACKING]
    yield from conflicts[:SHOWN_LIMIT]
    yield from _left_out(len(conflicts), "frames that contradict others")


def _left_out(count: int, what: str) -> Iterator[str]:
    if count > SHOWN_LIMIT:
        yield f"... and {count - SHOWN_LIMIT:,} {what} more; --json has them"


def _ends(number: int, count: ConnectionCount) -> str:
    return f"{number:>4}  {count.client} > {count.server}" if count.server else f"{'':>6}{count.client}"
