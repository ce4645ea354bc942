"""The story of a message, step by step, each with the frame that shows it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from duckdb import DuckDBPyConnection

from mqproto.captures.decode.ranges import BoundedRanges
from mqproto.captures.pipeline.report.counts.asking import rows
from mqproto.captures.pipeline.report.counts.places import Places, Seen
from mqproto.captures.pipeline.report.counts.security import secured
from mqproto.captures.pipeline.report.facts.facts import Place, Sentence, Step, Story
from mqproto.captures.pipeline.report.facts.words import took, why
from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.captures.pipeline.stages.schema import GAPS, HOPS
from mqproto.edge.exactlyonce import Verdict
from mqproto.wire import MessageClass

COPIES_TOLD: Final = 8
"""The maximum number of a message's arrivals at one queue manager that are described one by one."""
GAPS_KEPT: Final = 100
"""The maximum number of gaps examined in one sequence on its way to one queue manager."""
GAPS_TOLD: Final = 4
_ARRIVAL: Final = ("message", "to_key", "series", "row_id", "number", "verdict", "reason")
HOPS_OF_ONE: Final = 64
"""The maximum number of hops kept for one message; MSMQ ends a message after 15 hops, or 29 if configured so."""
_HOP: Final = tuple(name for name in HOPS.names if name not in ("file_offset", "hop_count"))
_GAP: Final = ("series", "source_manager", "sequence", "to_key")
_AS: Final = {
    str(Verdict.NEW): "as a new one",
    str(Verdict.DUPLICATE): "as a duplicate",
    str(Verdict.IN_DOUBT): "in doubt",
}
_CAME: Final = ("source_manager", "sequence", "sequence_number", "arrived_ns")
Row = dict[str, Any]


@dataclass(slots=True)
class Evidence:
    """Further rows about some messages.

    histories: rows of HISTORIES.
    ways: rows of HOPS, keyed by message.
    arrivals: rows of DUPLICATES, keyed by message and receiver; only those for arrivals on the message's path.
    answers: the number of the packet with the receiver's first answer, keyed by series and row.
    gaps: rows of GAPS, as selected by _GAP, for sequences on the messages' paths.
    came: the numbers of messages that are missing in gaps but reached their destination, in order, with their times,
        keyed by source and sequence. They may have come on other hops, or in packets that did not show their numbers.
    lossy: the series with losses. Messages that were not seen there may still have existed.
    """

    histories: list[Row]
    ways: dict[str, list[Row]]
    arrivals: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    answers: dict[tuple[str, int], int | None] = field(default_factory=dict)
    gaps: dict[tuple[str, ...], list[Row]] = field(default_factory=dict)
    came: dict[tuple[str, ...], list[tuple[int, int]]] = field(default_factory=dict)
    lossy: frozenset[str] = frozenset()

    def is_lossy(self, row: Row) -> bool:
        """Whether a series in which a message was seen has losses."""
        return any(hop["series"] in self.lossy for hop in (row, *self.ways[row["message"]]))


def evidence(
    connection: DuckDBPyConnection, known: dict[str, Any], histories: list[Row], places: Places
) -> Evidence:
    """Return the further rows about some messages, and request the packets that these rows refer to.

    Args:
        known: for each series, the state left by the runs that read it.
    """
    ways = _ways_of(connection, [row["message"] for row in histories])
    found = Evidence(histories, ways, lossy=lossy_series(connection, known))
    for row in histories:
        for hop in ways[row["message"]]:
            found.arrivals[row["message"], hop["to_key"]] = []
            found.gaps[hop["series"], row["source_manager"], row["sequence"], hop["to_key"]] = []
    for row in _with_one_of(connection, "duplicates", "message", ways, _ARRIVAL):
        arrivals = found.arrivals.get((row["message"], row["to_key"]))
        if arrivals is not None and len(arrivals) < COPIES_TOLD:
            arrivals.append(row)
            found.answers[row["series"], row["row_id"]] = None
            places.want_packet(row["series"], row["number"])
    _answers(connection, found.answers, places)
    sequences = {row["sequence"] for row in histories if row["sequence"]}
    for row in _with_one_of(connection, "gaps", "sequence", sequences, GAPS.names):
        gaps = found.gaps.get(tuple(row[name] for name in _GAP))
        if gaps is not None and len(gaps) < GAPS_KEPT:
            gaps.append(row)
            if row["filled_by"] is not None:
                places.want_packet(row["series"], row["filled_by"])
    _find_what_came(connection, found)
    for row in histories:
        for hop in ways[row["message"]]:
            places.want_packet(hop["series"], hop["number"])
        for _, acknowledgment in _acknowledgments(row):
            places.want_acknowledgment(*acknowledgment)
    return found


def _find_what_came(connection: DuckDBPyConnection, found: Evidence) -> None:
    """Find out when the messages that were missing in gaps reached their destination."""
    lacking: dict[tuple[str, ...], BoundedRanges] = {}
    for key, gaps in found.gaps.items():
        for gap in gaps:
            lacking.setdefault(key[1:3], BoundedRanges()).add(gap["first_number"], gap["last_number"])
    for row in _with_one_of(connection, "histories", "sequence", [each for _, each in lacking], _CAME):
        source, sequence, number, arrived_ns = (row[name] for name in _CAME)
        if arrived_ns is not None and number in lacking.get((source, sequence), ()):
            insort(found.came.setdefault((source, sequence), []), (number, arrived_ns))


def stories(found: Evidence, places: Places, ended_ns: int) -> Iterator[tuple[str, Story]]:
    """Yield the stories of messages, each with the message's key.

    Args:
        places: where the requested packets have been found.
        ended_ns: when the captures ended.
    """
    for row in found.histories:
        hops = found.ways[row["message"]]
        holder, gaps, never = _held(row, hops, found)
        is_lossy = found.is_lossy(row)
        steps = [
            *_crossings(row, hops, found, places),
            *_holding(row, holder, gaps, places, is_lossy=is_lossy),
        ]
        for text, acknowledgment in _acknowledgments(row):
            seen = places.acknowledgment(*acknowledgment)
            steps.append(Step(acknowledgment[-1], Sentence(text), _place(seen)))
        if row["covered_ns"] is not None:
            text = "a FinalAck of a later message of its sequence said that this one came too"
            steps.append(Step(row["covered_ns"], Sentence(text)))
        steps.sort(key=lambda step: step.time_ns)
        verdict = _verdict(row, hops, never, places, ended_ns, is_lossy=is_lossy)
        yield row["message"], Story(verdict, steps, secured(hops, places))


def lossy_series(connection: DuckDBPyConnection, known: dict[str, Any]) -> frozenset[str]:
    """Return the series with losses.

    Either the run that read a series found losses, or the beginning of one of its connections is missing.
    """
    headless = connection.execute("select distinct series from sessions where not begun").fetchall()
    return frozenset(
        {name for name, each in known.items() if each.get("is_lossy")} | {name for (name,) in headless}
    )


def _with_one_of(
    connection: DuckDBPyConnection, table: str, column: str, wanted: Iterable[str], columns: Iterable[str]
) -> Iterator[Row]:
    """Yield the rows of a table, in their order, that have one of these texts in a column."""
    sql = f"""
        select {", ".join(columns)} from {table}
        where {column} in (select unnest($wanted::varchar[])) order by place"""
    return rows(connection, sql, wanted=[*wanted])


def _ways_of(connection: DuckDBPyConnection, wanted: list[str]) -> dict[str, list[Row]]:
    """Return the hops of each message in order."""
    found: dict[str, list[Row]] = {message: [] for message in wanted}
    for row in _with_one_of(connection, "hops", "message", wanted, _HOP):
        if len(found[row["message"]]) < HOPS_OF_ONE:
            found[row["message"]].append(row)
    for hops in found.values():
        hops.sort(key=lambda row: (row["position"], row["first_ns"]))
    return found


def _answers(
    connection: DuckDBPyConnection, wanted: dict[tuple[str, int], int | None], places: Places
) -> None:
    sql = """
        select series, row_id, acknowledged_by from relations
        semi join (select unnest($wanted::struct(series varchar, row_id bigint)[], recursive := true))
            using (series, row_id)
        where acknowledged_by is not null order by place"""
    packets = [{"series": series, "row_id": row_id} for series, row_id in wanted]
    for row in rows(connection, sql, wanted=packets):
        wanted[row["series"], row["row_id"]] = row["acknowledged_by"]
        places.want_packet(row["series"], row["acknowledged_by"])


def _acknowledgments(row: Row) -> Iterator[tuple[str, tuple[str, str, int]]]:
    """Yield what each acknowledgment says about a message, and the key under which `Places` has its packet."""
    message = row["message"]
    if row["order_acked_ns"] is not None and row["sequence"]:
        text = "its source got the OrderAck" if row["order_ack_at_source"] else "an OrderAck for it was seen"
        yield text, (row["sequence"], MessageClass.ORDER_ACK.name, row["order_acked_ns"])
    if row["final_ns"] is not None:
        yield f"a FinalAck said {row['final_class']}", (message, row["final_class"], row["final_ns"])
    for name, time_ns in zip(row["administration"] or (), row["administration_ns"] or (), strict=True):
        yield f"an administration acknowledgment said {name}", (message, name, time_ns)


def _crossings(row: Row, hops: list[Row], found: Evidence, places: Places) -> Iterator[Step]:
    """Yield a step for each hop, each further copy, and the receiver's first answer."""
    told = {(hop["series"], hop["number"]) for hop in hops}
    for hop in hops:
        ends = f"from {hop['from_label']} to {hop['to_label']}"
        arrives = hop["first_ns"] == row["arrived_ns"] and hop["to_label"] == row["whereabouts"]
        text = f"went {ends}{', its destination' if arrives else ''}"
        seen = places.packet(hop["series"], hop["number"])
        if seen is not None and seen.secured is not None and seen.secured.verified is False:
            text += ", with a signature that does not hold"
        waited_ns = hop["waited_ns"]
        said = Sentence(text)
        if waited_ns is not None:
            said = took(f"{text}, after it waited", waited_ns, hop["waited_uncertainty_ns"])
        place = Place(hop["file"], hop["frame"]) if seen is None else seen.place
        yield Step(hop["first_ns"], said, place)
        arrivals = found.arrivals[row["message"], hop["to_key"]]
        for arrival in arrivals:
            packet = arrival["series"], arrival["number"]
            again = places.packet(*packet)
            # The first arrival is no other than the hop's own packet, seen by another capture point.
            is_first = arrival["verdict"] == Verdict.NEW and not arrival["reason"]
            if again is not None and packet not in told and not is_first:
                reason = f": {arrival['reason']}" if arrival["reason"] else ""
                text = f"came to {hop['to_label']} again, {_AS.get(arrival['verdict'], '')}{reason}"
                yield Step(again.time_ns, Sentence(text), again.place)
                told.add(packet)
        if hop["copies"] > 1 and not 0 < len(arrivals) < COPIES_TOLD:
            yield Step(hop["last_ns"], Sentence(f"went {ends} for the last of {hop['copies']:,} times"))
        if hop["acknowledged_ns"] is not None:
            text = f"{hop['to_label']} answered for it"
            yield Step(hop["acknowledged_ns"], Sentence(text), _answer(hop, arrivals, found, places))


def _answer(hop: Row, arrivals: list[Row], found: Evidence, places: Places) -> Place | None:
    """Return the place of the packet with which the receiver at the end of a hop answered; None if it is unknown."""
    for arrival in arrivals:
        number = found.answers[arrival["series"], arrival["row_id"]]
        seen = None if number is None else places.packet(arrival["series"], number)
        if seen is not None and seen.time_ns == hop["acknowledged_ns"]:
            return seen.place
    return None


def _held(row: Row, hops: list[Row], found: Evidence) -> tuple[str, list[Row], list[Row]]:
    """Return the destination of a message, and the gaps that made the destination hold the message.

    Also return those of the gaps that were never filled.  [MS-MQQB] 3.1.5.8.6

    An OrderAck, or a FinalAck of a later message, proves that all earlier messages have arrived, even those that the
    captures do not show. With such an acknowledgment, a gap that was never filled does not count. Connections with
    losses are read later than others. So a gap counts only if it was still open when the message arrived, both by time
    and by the order of packets.
    """
    is_acked = row["order_acked_ns"] is not None or row.get("covered_ns") is not None
    arrived_ns, number = row["arrived_ns"], row["sequence_number"]
    for hop in hops:
        if row["sequence"] and hop["first_ns"] == arrived_ns and hop["to_label"] == row["whereabouts"]:
            key = (hop["series"], row["source_manager"], row["sequence"], hop["to_key"])
            gaps = [
                gap
                for gap in found.gaps.get(key, ())
                if gap["last_number"] < number
                and gap["opened_ns"] <= arrived_ns
                and (not is_acked if gap["filled_ns"] is None else gap["filled_ns"] > arrived_ns)
                and (gap["filled_by"] is None or gap["filled_by"] > hop["number"])
            ]
            came = found.came.get(key[1:3], [])
            never = [part for gap in gaps if gap["filled_ns"] is None for part in _lacking(gap, came)]
            return hop["to_label"], [part for gap in gaps for part in _lacking(gap, came, arrived_ns)], never
    return "", [], []


def _lacking(gap: Row, came: list[tuple[int, int]], by_ns: float = inf) -> Iterator[Row]:
    """Yield the parts of a gap whose messages had not come by `by_ns`, on any hop."""
    first, end = gap["first_number"], gap["last_number"] + 1
    for number, time_ns in (*came[bisect_left(came, (first,)) : bisect_left(came, (end,))], (end, 0)):
        if time_ns <= by_ns:
            if first < number:
                yield gap | {"first_number": first, "last_number": number - 1}
            first = number + 1


def _holding(row: Row, holder: str, gaps: list[Row], places: Places, *, is_lossy: bool) -> Iterator[Step]:
    if not gaps:
        return
    numbers = _numbers(gaps)
    if is_lossy:
        text = f"{numbers} had not{_all(gaps)} been seen to come: if they had not, {holder} had to hold it"
        yield Step(row["arrived_ns"], Sentence(text))
        return
    yield Step(row["arrived_ns"], Sentence(f"{holder} had to hold it: {numbers} had not come"))
    if all(gap["filled_ns"] is not None for gap in gaps):
        last = max(gaps, key=lambda gap: gap["filled_ns"])
        text = f"all before it had come, so that {holder} could let it go, after"
        place = _place(places.packet(last["series"], last["filled_by"]))
        yield Step(last["filled_ns"], Sentence(text, last["filled_ns"] - row["arrived_ns"]), place)


def _numbers(gaps: list[Row]) -> str:
    shown = ", ".join(
        f"{gap['first_number']:,}"
        if gap["first_number"] == gap["last_number"]
        else f"{gap['first_number']:,}–{gap['last_number']:,}"
        for gap in gaps[:GAPS_TOLD]
    )
    more = " and others" if len(gaps) > GAPS_TOLD else ""
    return f"of its sequence, {shown}{more}"


def _all(gaps: list[Row]) -> str:
    """Return " all" if several numbers are missing, otherwise an empty text.

    Some of these numbers may have arrived while the gap is still open.
    """
    return "" if len(gaps) == 1 and gaps[0]["first_number"] == gaps[0]["last_number"] else " all"


def _place(seen: Seen | None) -> Place | None:
    return None if seen is None else seen.place


def _verdict(
    row: Row, hops: list[Row], never: list[Row], places: Places, ended_ns: int, *, is_lossy: bool
) -> Sentence:
    """Return the outcome in words; if the captures have losses, it says what was seen, not what was absent."""
    where = row["whereabouts"]
    came = f"It came to its destination, {where}"
    after = Sentence(came)
    if row["latency_ns"] or row["latency_uncertainty_ns"]:
        after = took(f"{came}, after", row["latency_ns"], row["latency_uncertainty_ns"])
    match row["outcome"]:
        case Outcome.EXPIRED | Outcome.REFUSED:
            how = "expired" if row["outcome"] == Outcome.EXPIRED else "was refused"
            return Sentence(f"It {how}{why(row)}. It was last seen at {where}. {_grave(row, hops, places)}")
        case Outcome.CONFIRMED:
            return after._replace(after=", and its source was told so.")
        case Outcome.ACKNOWLEDGED:
            return Sentence("Its destination said that it came.")
        case Outcome.REACHED if never:
            numbers = _numbers(never)
            if is_lossy:
                return Sentence(
                    f"{came}. {numbers[:1].upper()}{numbers[1:]} were not{_all(never)} seen to come."
                )
            return Sentence(f"{came}, which has to hold it: {numbers} never came.")
        case Outcome.REACHED if row["reason"]:
            return after._replace(
                after=f". Whether it was acknowledged, the captures cannot say: {row['reason']}."
            )
        case Outcome.REACHED:
            return after._replace(after=". Nothing more was said about it in these captures.")
    return _last_seen(row, hops, ended_ns)


def _last_seen(row: Row, hops: list[Row], ended_ns: int) -> Sentence:
    """For a message whose end was not seen, return where it is now.

    If the captures cannot tell, return where it was last seen.
    """
    where, lost = row["whereabouts"], ""
    if row["outcome"] == Outcome.NOT_KNOWN:
        lost = f" Whether it went on, the captures cannot say: {row['reason']}."
    if not hops:
        return Sentence(f"It was last seen at, or on, {where}.{lost}")
    last = hops[-1]
    if last["acknowledged_ns"] is not None:
        text = f"{last['to_label']} answered for it, and was not seen to send it on"  # No sniffer sees every path.
        return Sentence(*_until(text, ended_ns - last["acknowledged_ns"], lost))
    times = f"{last['copies']:,} times" if last["copies"] > 1 else "once"
    if not last["numbered"]:
        text = f"{last['from_label']} was seen to send it to {last['to_label']} {times}"
        return Sentence(f"{text}. Whether that answered, the captures cannot say.{lost}")
    text = f"{last['from_label']} sent it to {last['to_label']} {times}, and no answer came"
    if lost:
        text = (
            f"{last['from_label']} was seen to send it to {last['to_label']} {times}, and no answer was seen"
        )
    return Sentence(*_until(text, ended_ns - last["last_ns"], lost))


def _until(text: str, ns: int, lost: str) -> tuple[str, int | None, str]:
    if ns < 1_000:
        return f"{text} before the captures end.{lost}", None, ""
    return f"{text} in the", ns, f" until the captures end.{lost}"


def _grave(row: Row, hops: list[Row], places: Places) -> str:
    """Return where a failed message is, according to its own settings.  [MS-MQMQ] 2.2.19.2"""
    seen = places.packet(hops[0]["series"], hops[0]["number"]) if hops else None
    if seen is None:
        return ""
    if not seen.journal_negative:
        return "It did not ask to be kept as a dead letter."
    first = hops[0]
    source = first["from_label"] if first["from_key"] == row["source_manager"] else "its source"
    kind = "transactional dead-letter" if row["sequence"] else "dead-letter"
    return f"It asked to be kept as a dead letter: look into the {kind} queue of {source}."
