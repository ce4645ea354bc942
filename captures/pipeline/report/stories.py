"""What happened to a message, step by step, each with the frame that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from captures.pipeline.report.facts import Place, Sentence, Step, Story
from captures.pipeline.report.messages import ways_of
from captures.pipeline.report.places import Places, Seen
from captures.pipeline.report.scanning import batches
from captures.pipeline.stages.histories import Outcome
from captures.pipeline.stages.sequence_schema import GAPS
from captures.pipeline.tables import Tables
from mqproto.edge.exactlyonce import Verdict
from mqproto.wire import MessageClass
from mqproto.wire.classes import REFUSALS

COPIES_TOLD: Final = 8
"""How many arrivals of a message at one queue manager are told one by one."""
GAPS_KEPT: Final = 100
"""How many gaps of one sequence on its way to one queue manager are looked at."""
GAPS_TOLD: Final = 4
_ARRIVAL: Final = ("message", "to_key", "series", "row_id", "number", "verdict", "reason")
_GAP: Final = ("series", "source_manager", "sequence", "to_key")
_AS: Final = {
    str(Verdict.NEW): "as a new one",
    str(Verdict.DUPLICATE): "as a duplicate",
    str(Verdict.IN_DOUBT): "in doubt",
}
_REFUSALS: Final = {each.name: text for each, text in REFUSALS.items()}
Row = dict[str, Any]


@dataclass(slots=True)
class Evidence:
    """What else tables have of some messages.

    histories, ways: as HISTORIES has them, and HOPS, by the message.
    arrivals: by message and receiver, as DUPLICATES has them; of those on its way alone, as of gaps.
    answers: by series and row, the number of the packet that first answered for it.
    gaps: by _GAP, as GAPS has them.
    """

    histories: list[Row]
    ways: dict[str, list[Row]]
    arrivals: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    answers: dict[tuple[str, int], int | None] = field(default_factory=dict)
    gaps: dict[tuple[str, ...], list[Row]] = field(default_factory=dict)


def evidence(tables: Tables, histories: list[Row], places: Places) -> Evidence:
    """Look for it, and ask for the packets that it leads to."""
    ways = ways_of(tables, [row["message"] for row in histories])
    found = Evidence(histories, ways)
    for row in histories:
        for hop in ways[row["message"]]:
            found.arrivals[row["message"], hop["to_key"]] = []
            found.gaps[hop["series"], row["source_manager"], row["sequence"], hop["to_key"]] = []
    for row in _rows_of(tables, "duplicates", "message", ways, _ARRIVAL):
        arrivals = found.arrivals.get((row["message"], row["to_key"]))
        if arrivals is not None and len(arrivals) < COPIES_TOLD:
            arrivals.append(row)
            found.answers[row["series"], row["row_id"]] = None
            places.want_packet(row["series"], row["number"])
    _answers(tables, found.answers, places)
    sequences = {row["sequence"] for row in histories if row["sequence"]}
    for row in _rows_of(tables, "gaps", "sequence", sequences, GAPS.names):
        gaps = found.gaps.get(tuple(row[name] for name in _GAP))
        if gaps is not None and len(gaps) < GAPS_KEPT:
            gaps.append(row)
            if row["filled_by"] is not None:
                places.want_packet(row["series"], row["filled_by"])
    for row in histories:
        for hop in ways[row["message"]]:
            places.want_packet(hop["series"], hop["number"])
        for _, acknowledgment in _acknowledgments(row):
            places.want_acknowledgment(*acknowledgment)
    return found


def stories(found: Evidence, places: Places, ended_ns: int) -> Iterator[tuple[str, Story]]:
    """By the message, what happened to it.

    Args:
        places: all that was asked for was looked for.
        ended_ns: when the captures ended.
    """
    for row in found.histories:
        hops = found.ways[row["message"]]
        holder, gaps = _held(row, hops, found)
        steps = [*_crossings(row, hops, found, places), *_holding(row, holder, gaps, places)]
        for text, acknowledgment in _acknowledgments(row):
            seen = places.acknowledgment(*acknowledgment)
            steps.append(Step(acknowledgment[-1], Sentence(text), _place(seen)))
        if row["covered_ns"] is not None:
            text = "a FinalAck of a later message of its sequence said that this one came too"
            steps.append(Step(row["covered_ns"], Sentence(text)))
        steps.sort(key=lambda step: step.time_ns)
        yield row["message"], Story(_verdict(row, hops, gaps, places, ended_ns), steps)


def _rows_of(
    tables: Tables, table: str, column: str, wanted: Iterable[str], names: Iterable[str]
) -> Iterator[Row]:
    values = pa.array(wanted, pa.string())
    if len(values):
        for batch in batches(tables, table, list(names)):
            yield from batch.filter(pc.is_in(batch.column(column), value_set=values)).to_pylist()


def _answers(tables: Tables, wanted: dict[tuple[str, int], int | None], places: Places) -> None:
    row_ids = pa.array({row_id for _, row_id in wanted}, pa.int64())
    if len(row_ids):
        for batch in batches(tables, "relations", ("series", "row_id", "acknowledged_by")):
            for row in batch.filter(pc.is_in(batch.column("row_id"), value_set=row_ids)).to_pylist():
                key, number = (row["series"], row["row_id"]), row["acknowledged_by"]
                if key in wanted and number is not None:
                    wanted[key] = number
                    places.want_packet(row["series"], number)


def _acknowledgments(row: Row) -> Iterator[tuple[str, tuple[str, str, int]]]:
    """What acknowledgments of a message said, and what `Places` knows them by."""
    message = row["message"]
    if row["order_acked_ns"] is not None and row["sequence"]:
        text = "its source got the OrderAck" if row["order_ack_at_source"] else "an OrderAck for it was seen"
        yield text, (row["sequence"], MessageClass.ORDER_ACK.name, row["order_acked_ns"])
    if row["final_ns"] is not None:
        yield f"a FinalAck said {row['final_class']}", (message, row["final_class"], row["final_ns"])
    for name, time_ns in zip(row["administration"] or (), row["administration_ns"] or (), strict=True):
        yield f"an administration acknowledgment said {name}", (message, name, time_ns)


def _crossings(row: Row, hops: list[Row], found: Evidence, places: Places) -> Iterator[Step]:
    """Each hop, each further copy, and when the receiver first answered."""
    told = {(hop["series"], hop["number"]) for hop in hops}
    for hop in hops:
        ends = f"from {hop['from_label']} to {hop['to_label']}"
        arrives = hop["first_ns"] == row["arrived_ns"] and hop["to_label"] == row["whereabouts"]
        text = f"went {ends}{', its destination' if arrives else ''}"
        waited_ns = hop["waited_ns"]
        said = Sentence(text) if waited_ns is None else Sentence(f"{text}, after it waited", waited_ns)
        seen = places.packet(hop["series"], hop["number"])
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
    """The packet by which a receiver answered at that time."""
    for arrival in arrivals:
        number = found.answers[arrival["series"], arrival["row_id"]]
        seen = None if number is None else places.packet(arrival["series"], number)
        if seen is not None and seen.time_ns == hop["acknowledged_ns"]:
            return seen.place
    return None


def _held(row: Row, hops: list[Row], found: Evidence) -> tuple[str, list[Row]]:
    """Its destination, and the gaps because of which that had to hold it.  [MS-MQQB] 3.1.5.8.6"""
    arrived_ns, number = row["arrived_ns"], row["sequence_number"]
    for hop in hops:
        if row["sequence"] and hop["first_ns"] == arrived_ns and hop["to_label"] == row["whereabouts"]:
            key = (hop["series"], row["source_manager"], row["sequence"], hop["to_key"])
            gaps = [
                gap
                for gap in found.gaps.get(key, ())
                if gap["last_number"] < number
                and gap["opened_ns"] <= arrived_ns
                and (gap["filled_ns"] is None or gap["filled_ns"] > arrived_ns)
            ]
            return hop["to_label"], gaps
    return "", []


def _holding(row: Row, holder: str, gaps: list[Row], places: Places) -> Iterator[Step]:
    if gaps:
        text = f"{holder} had to hold it: {_numbers(gaps)} had not come"
        yield Step(row["arrived_ns"], Sentence(text))
    if gaps and all(gap["filled_ns"] is not None for gap in gaps):
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


def _place(seen: Seen | None) -> Place | None:
    return None if seen is None else seen.place


def _verdict(row: Row, hops: list[Row], gaps: list[Row], places: Places, ended_ns: int) -> Sentence:
    """What became of it."""
    where, took_ns = row["whereabouts"], row["latency_ns"] or None
    came = f"It came to its destination, {where}"
    after = came if took_ns is None else f"{came}, after"
    match row["outcome"]:
        case Outcome.EXPIRED:
            return Sentence(
                f"It expired{_why(row)}. It was last seen at {where}. {_grave(row, hops, places)}"
            )
        case Outcome.REFUSED:
            return Sentence(
                f"It was refused{_why(row)}. It was last seen at {where}. {_grave(row, hops, places)}"
            )
        case Outcome.CONFIRMED:
            return Sentence(after, took_ns, ", and its source was told so.")
        case Outcome.ACKNOWLEDGED:
            return Sentence("Its destination said that it came. The captures do not show it come.")
        case Outcome.REACHED if any(gap["filled_ns"] is None for gap in gaps):
            return Sentence(f"{came}, which has to hold it: {_numbers(gaps)} never came.")
        case Outcome.REACHED:
            return Sentence(after, took_ns, ". Nothing more was said of it in these captures.")
    lost = (
        ""
        if row["outcome"] == Outcome.IN_FLIGHT
        else " The captures lack some of the traffic, so it may have gone on."
    )
    if not hops:
        return Sentence(f"It was last seen at, or on, {where}.{lost}")
    last = hops[-1]
    if last["acknowledged_ns"] is not None:
        text = f"{where} answered for it, and has it: it did not send it on"
        return Sentence(*_until(text, ended_ns - last["acknowledged_ns"], lost))
    times = f"{last['copies']:,} times" if last["copies"] > 1 else "once"
    text = f"{last['from_label']} sent it to {last['to_label']} {times}, and no answer came"
    return Sentence(*_until(text, ended_ns - last["last_ns"], lost))


def _until(text: str, ns: int, lost: str) -> tuple[str, int | None, str]:
    if ns < 1_000:
        return f"{text} before the captures end.{lost}", None, ""
    return f"{text} in the", ns, f" until the captures end.{lost}"


def _why(row: Row) -> str:
    """What the first refusal said, in words where the class of it is known."""
    for name in (row["final_class"], *(row["administration"] or ())):
        if name in _REFUSALS:
            return f": {_REFUSALS[name]}"
    return ""


def _grave(row: Row, hops: list[Row], places: Places) -> str:
    """Where a message that failed is, by what it asked for.  [MS-MQMQ] 2.2.19.2"""
    seen = places.packet(hops[0]["series"], hops[0]["number"]) if hops else None
    if seen is None:
        return ""
    if not seen.journal_negative:
        return "It did not ask to be kept as a dead letter."
    first = hops[0]
    source = first["from_label"] if first["from_key"] == row["source_manager"] else "its source"
    kind = "transactional dead-letter" if row["sequence"] else "dead-letter"
    return f"It asked to be kept as a dead letter: look into the {kind} queue of {source}."
