"""The story of a message has what its packets show, and each step leads to the frame that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqproto.captures.decode.sight import Kind
from mqproto.captures.pipeline.report.counts.asking import asked
from mqproto.captures.pipeline.report.counts.places import Places
from mqproto.captures.pipeline.report.counts.stories import COPIES_TOLD, Evidence, lossy_series, stories
from mqproto.captures.pipeline.report.facts.facts import Place, Story
from mqproto.captures.pipeline.report.facts.words import sentence
from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.stages.schema import HISTORIES, HOPS
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import (
    BEGIN_NS,
    Rows,
    capture,
    history,
    hop,
    hops_of,
    made_up,
    sample,
)

SECOND = 10**9
GAP: dict[str, Any] = {
    "series": "day.pcapng",
    "source_manager": "a-key",
    "sequence": "1:1",
    "from_key": "b-key",
    "to_key": "c-key",
    "opened_by": 1,
    "opened_ns": BEGIN_NS,
}


def told(story: Story) -> list[str]:
    return [sentence(step.said) for step in story.steps]


def packets_by_place(tables: Tables) -> dict[tuple[str, int], list[dict[str, Any]]]:
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in tables.read("packets").to_pylist():
        found.setdefault((row["frame_file"] or row["file"], row["frame"]), []).append(row)
    return found


@pytest.mark.parametrize("name", ["gap-held", "final-acks", "administration", "intermediate-killed"])
def test_each_step_leads_to_the_packet_that_shows_it(name: str, tmp_path: Path) -> None:
    tables = sample(name, tmp_path)
    packets = packets_by_place(tables)
    for message, story in gather(tables).messages.stories.items():
        assert story.steps == sorted(story.steps, key=lambda step: step.time_ns)
        crossed = set()
        for step in story.steps:
            text = sentence(step.said)
            if "had to hold it" in text:
                continue
            assert step.place is not None, text
            there = [row for row in packets[step.place] if row["time_ns"] == step.time_ns]
            kinds = {row["kind"] for row in there}
            if text.startswith(("went from", "came to")):
                assert message in {row["message"] for row in there}
                crossed.add(step.place)
            elif text.endswith("answered for it"):
                assert any(row["ack_number"] is not None for row in there), "it has no session header"
            elif "OrderAck" in text:
                assert Kind.ORDER_ACK in kinds
            elif "let it go" in text:
                assert there
            elif "FinalAck" in text:
                assert message in {row["ack_message"] for row in there}
            else:
                assert any(row["class_name"] and text.endswith(row["class_name"]) for row in there)
        shown = {place for place, rows in packets.items() if message in {row["message"] for row in rows}}
        assert crossed == shown


def test_messages_behind_a_gap_say_what_they_waited_for(gap_held: Tables) -> None:
    messages = gather(gap_held).messages
    held = {
        row["sequence_number"]: [
            line for line in told(messages.stories[row["message"]]) if " hold" in line or "let it" in line
        ]
        for row in messages.embedded
    }
    waited = [number for number, lines in held.items() if lines]
    assert waited == [6, 7, 8, 9]
    for number in waited:
        first, last = held[number]
        assert first == "127.0.0.3:1801 had to hold it: of its sequence, 3–5 had not come"
        assert last.startswith("all before it had come, so that 127.0.0.3:1801 could let it go, after 5.")


@pytest.mark.parametrize(
    ("journal_negative", "sequence", "told"),
    [
        (
            True,
            "1:1",
            "It asked to be kept as a dead letter: look into the transactional dead-letter queue of a.",
        ),
        (True, None, "It asked to be kept as a dead letter: look into the dead-letter queue of a."),
        (False, "1:1", "It did not ask to be kept as a dead letter."),
    ],
)
def test_a_message_that_failed_says_why_and_where_it_is_now(
    journal_negative: bool, sequence: str | None, told: str, tmp_path: Path
) -> None:
    row = history(
        1, outcome="refused", final_class="NACK_Q_EXCEED_QUOTA", final_ns=BEGIN_NS, sequence=sequence
    )
    row |= {"source_manager": "a-key", "order_acked_ns": None}
    packet = {"series": "day.pcapng", "row_id": 1, "number": 1, "framed": True, "time_ns": BEGIN_NS}
    packet |= {"file": "day.pcapng", "frame": 1, "journal_negative": journal_negative}
    rows: dict[str, Rows] = {"histories": [row], "hops": hops_of(row), "packets": [packet]}
    [story] = gather(made_up(tmp_path / "out", rows)).messages.stories.values()
    assert sentence(story.verdict) == f"It was refused: its queue was full. It was last seen at c. {told}"


def stuck(number: int, **columns: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("arrived_ns", "latency_ns", "order_acked_ns", "order_ack_at_source"))
    return history(number, outcome="in flight", **nothing, **columns)


def test_a_message_that_is_stuck_is_said_to_be_where_it_is(tmp_path: Path) -> None:
    there, between = stuck(1, whereabouts="b"), stuck(2, whereabouts="b > c")
    hops = [
        hop(there["message"], 1, "ab", BEGIN_NS, acknowledged_ns=BEGIN_NS + 2 * SECOND),
        hop(between["message"], 1, "ab", BEGIN_NS, acknowledged_ns=BEGIN_NS),
        hop(between["message"], 2, "bc", BEGIN_NS, last_ns=BEGIN_NS + 6 * SECOND, copies=3),
    ]
    ended = capture(last_ns=BEGIN_NS + 9 * SECOND)
    rows: dict[str, Rows] = {"captures": [ended], "histories": [there, between], "hops": hops}
    stories = gather(made_up(tmp_path / "out", rows)).messages.stories
    assert [sentence(story.verdict) for story in stories.values()] == [
        "b answered for it, and was not seen to send it on in the 7 s until the captures end.",
        "b sent it to c 3 times, and no answer came in the 3 s until the captures end.",
    ]
    assert "went from b to c for the last of 3 times" in told(stories[between["message"]])


def test_a_gap_that_was_filled_when_a_message_was_read_kept_none_though_its_filling_came_later(
    tmp_path: Path,
) -> None:
    """A gap that had been filled when a message was read did not hold the message up.

    This holds even if the filling has a later time, because packets on a connection with missing bytes are read late.
    """
    row = history(9, outcome="reached", order_acked_ns=None, source_manager="a-key")
    gap = GAP | {"first_number": 3, "last_number": 3, "filled_ns": row["first_ns"] + 60 * SECOND}
    for filled_by, is_held in ((2, False), (3, True)):
        rows: dict[str, Rows] = {
            "histories": [row],
            "hops": hops_of(row),
            "gaps": [gap | {"filled_by": filled_by}],
        }
        [story] = gather(made_up(tmp_path / f"{filled_by}", rows)).messages.stories.values()
        assert ("c had to hold it: of its sequence, 3 had not come" in told(story)) == is_held


def test_a_message_that_its_destination_holds_for_ever_says_what_it_lacks(tmp_path: Path) -> None:
    row = history(9, outcome="reached", order_acked_ns=None, source_manager="a-key")
    gaps = [GAP | {"first_number": first, "last_number": last} for first, last in ((3, 5), (7, 7), (10, 12))]
    tables = made_up(tmp_path / "out", {"histories": [row], "hops": hops_of(row), "gaps": gaps})
    [story] = gather(tables).messages.stories.values()
    assert sentence(story.verdict) == (
        "It came to its destination, c, which has to hold it: of its sequence, 3–5, 7 never came."
    )
    assert "c had to hold it: of its sequence, 3–5, 7 had not come" in told(story)


def test_of_a_message_that_crossed_very_often_some_copies_are_told(tmp_path: Path) -> None:
    row = history(1)
    copies = 3 * COPIES_TOLD
    first, second = hops_of(row)
    second |= {"number": 1_000}
    first |= {"copies": copies, "last_ns": BEGIN_NS + copies * SECOND}
    numbers = range(1, copies + 1)
    place = {"series": "day.pcapng", "file": "day.pcapng"}
    packets = [
        place | {"row_id": number, "number": number, "framed": True, "frame": number, "kind": "Transactional"}
        | {"message": row["message"], "time_ns": BEGIN_NS + number * SECOND, "interface": 0}
        for number in numbers
    ]  # fmt: skip
    arrivals = [
        place | {"message": row["message"], "to_key": "b-key", "row_id": number, "number": number}
        | {"verdict": "duplicate" if number > 1 else "new", "reason": "why" if number > 1 else ""}
        for number in numbers
    ]  # fmt: skip
    rows: dict[str, Rows] = {"histories": [row], "hops": [first, second], "packets": packets}
    rows["duplicates"] = arrivals
    [story] = gather(made_up(tmp_path / "out", rows)).messages.stories.values()
    again = [step for step in story.steps if "again" in step.said.before]
    assert [step.place for step in again] == [
        Place("day.pcapng", number) for number in range(2, COPIES_TOLD + 1)
    ]
    assert sentence(again[0].said) == "came to b again, as a duplicate: why"
    assert f"went from a to b for the last of {copies} times" in told(story)


def test_steps_are_by_the_reference_clock_whatever_clock_saw_them(tmp_path: Path) -> None:
    row = history(1)
    first, second = hops_of(row)
    second |= {"number": 2}
    packet = {
        "series": "day.pcapng",
        "file": "day.pcapng",
        "framed": True,
        "kind": "Transactional",
        "message": row["message"],
    }
    packets = [
        packet | {"row_id": 1, "number": 1, "frame": 1, "interface": 0, "time_ns": row["first_ns"]},
        packet
        | {"row_id": 2, "number": 2, "frame": 2, "interface": 1, "time_ns": row["arrived_ns"] + SECOND},
        packet
        | {"row_id": 3, "number": 3, "frame": 3, "interface": 1, "time_ns": row["arrived_ns"] + SECOND + 7},
        packet
        | {"row_id": 4, "number": 4, "frame": 4, "interface": 1, "time_ns": row["order_acked_ns"] + SECOND}
        | {"kind": "OrderAck", "class_name": "ORDER_ACK", "message": None, "ack_sequence": row["sequence"]},
    ]
    arrival = {"message": row["message"], "to_key": "c-key", "series": "day.pcapng"}
    arrivals = [arrival | {"row_id": number, "number": number} for number in (2, 3)]
    clocks = [{"series": "day.pcapng", "interface": 1, "offset_ns": SECOND, "packets": 1}]
    rows: dict[str, Rows] = {
        "histories": [row],
        "hops": [first, second],
        "packets": packets,
        "duplicates": arrivals,
        "clocks": clocks,
    }
    [story] = gather(made_up(tmp_path / "out", rows)).messages.stories.values()
    times = {step.place: step.time_ns for step in story.steps}
    assert times[Place("day.pcapng", 3)] == row["arrived_ns"] + 7
    assert times[Place("day.pcapng", 4)] == row["order_acked_ns"]


def lossy(tables: Tables) -> Tables:
    """Return the tables, changed as if the captures lacked something."""
    with tables.run() as run:
        run.commit(added=[], schemas={}, state={"series": {"day.pcapng": {"is_lossy": True}}})
    return tables


def test_of_captures_that_lack_something_it_is_said_what_was_seen_and_not_what_was_not_there(
    tmp_path: Path,
) -> None:
    there, between = stuck(1, whereabouts="b"), stuck(2, whereabouts="b > c")
    for row in (there, between):
        row |= {"outcome": "not known", "reason": "frames are missing"}
    unnumbered = stuck(3, whereabouts="b > c") | {"outcome": "not known", "reason": "frames are missing"}
    held, told_so = history(9, outcome="reached", order_acked_ns=None, source_manager="a-key"), history(8)
    told_so |= {"source_manager": "a-key"}
    gap = GAP | {"first_number": 3, "last_number": 5}
    hops = [
        hop(there["message"], 1, "ab", BEGIN_NS, acknowledged_ns=BEGIN_NS + 2 * SECOND),
        hop(between["message"], 2, "bc", BEGIN_NS, last_ns=BEGIN_NS + 6 * SECOND, copies=3),
        hop(unnumbered["message"], 2, "bc", BEGIN_NS, numbered=False),
        *hops_of(held),
        *hops_of(told_so),
    ]
    rows: dict[str, Rows] = {
        "captures": [capture(last_ns=BEGIN_NS + 9 * SECOND)],
        "histories": [there, between, unnumbered, held, told_so],
        "hops": hops,
        "gaps": [gap],
    }
    stories = gather(lossy(made_up(tmp_path / "out", rows))).messages.stories
    assert [sentence(story.verdict) for story in stories.values()] == [
        "b answered for it, and was not seen to send it on in the 7 s until the captures end. "
        "Whether it went on, the captures cannot say: frames are missing.",
        "b was seen to send it to c 3 times, and no answer was seen in the 3 s until the captures end. "
        "Whether it went on, the captures cannot say: frames are missing.",
        "b was seen to send it to c once. Whether that answered, the captures cannot say. "
        "Whether it went on, the captures cannot say: frames are missing.",
        "It came to its destination, c, after 5 ms, and its source was told so.",
        "It came to its destination, c. Of its sequence, 3–5 were not all seen to come.",
    ]
    assert "of its sequence, 3–5 had not all been seen to come: if they had not, c had to hold it" in told(
        stories[held["message"]]
    )
    assert not [said for said in told(stories[told_so["message"]]) if "hold" in said]


@pytest.mark.parametrize(
    ("came", "afterwards", "behind", "never"),
    [
        ((3, 4, 5), (), "", ""),
        ((4,), (), "3, 5", "3, 5"),
        ((3,), (5,), "4–5", "4"),
        ((), (3, 4, 5), "3–5", ""),
    ],
)
def test_a_message_waits_for_what_came_on_no_other_hop(
    came: tuple[int, ...], afterwards: tuple[int, ...], behind: str, never: str, tmp_path: Path
) -> None:
    """The messages in a gap came on another hop, before this message or after it.

    Or they came in packets that were cut before their numbers.
    """
    gap = GAP | {"first_number": 3, "last_number": 5}
    numbers = (9, *came, *afterwards)
    later, *others = (
        history(each, outcome="reached", order_acked_ns=None, source_manager="a-key") for each in numbers
    )
    for row in others[len(came) :]:
        row["arrived_ns"] = later["arrived_ns"] + SECOND
    rows: dict[str, Rows] = {"histories": [later, *others], "hops": hops_of(later), "gaps": [gap]}
    story = gather(made_up(tmp_path / "out", rows)).messages.stories[later["message"]]
    held = [f"c had to hold it: of its sequence, {behind} had not come"] if behind else []
    assert [said for said in told(story) if "hold" in said] == held
    verdict = f"c, which has to hold it: of its sequence, {never} never came."
    assert sentence(story.verdict).endswith(
        verdict if never else "Nothing more was said about it in these captures."
    )


def test_captures_that_have_not_the_beginning_of_a_connection_lack_something(tmp_path: Path) -> None:
    sessions = [{"series": "early.pcapng", "begun": True}, {"series": "late.pcapng", "begun": False}]
    with asked(made_up(tmp_path / "out", {"sessions": sessions})) as connection:
        found = lossy_series(connection, {"early.pcapng": {}, "holes.pcapng": {"is_lossy": True}})
    assert found == {"late.pcapng", "holes.pcapng"}


def test_an_acknowledgment_is_found_by_its_time_though_the_clock_there_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.captures.pipeline.tables.parts.GROUP_ROWS", 1)
    row = history(1)
    ahead_ns = 7 * SECOND
    point = {"series": "far.pcapng", "interface": 1}
    packet = point | {"framed": True, "kind": "OrderAck", "class_name": "ORDER_ACK", "ack_sequence": "1:1"}
    packets = [
        packet | {"row_id": 900 + number, "number": 900 + number, "frame": number, "file": "far.pcapng"}
        | {"time_ns": row["order_acked_ns"] + ahead_ns + (number - 5) * SECOND}
        for number in range(9)
    ]  # fmt: skip
    clock = point | {"offset_ns": ahead_ns, "uncertainty_ns": 0, "packets": 9}
    tables = made_up(tmp_path / "out", {"histories": [row], "packets": packets, "clocks": [clock]})
    [story] = gather(tables).messages.stories.values()
    assert [step.place for step in story.steps] == [("far.pcapng", 5)]


def test_why_an_end_is_not_known_is_said_where_the_tables_say_it() -> None:
    nothing: dict[str, Any] = dict.fromkeys((*HISTORIES.names, *HOPS.names))
    row = (
        nothing | stuck(1, whereabouts="b > c") | {"outcome": "not known", "reason": "frames are lost there"}
    )
    covered = nothing | history(2, order_acked_ns=None) | {"covered_ns": BEGIN_NS + SECOND}
    hops = [nothing | hops_of(row)[0]]
    ways: dict[str, list[dict[str, Any]]] = {row["message"]: hops, covered["message"]: []}
    known = Evidence([row, covered], ways)
    key = hops[0]["series"], row["source_manager"], row["sequence"], hops[0]["to_key"]
    known.arrivals[row["message"], hops[0]["to_key"]], known.gaps[key] = [], []
    found = dict(stories(known, Places(), BEGIN_NS + 9 * SECOND))
    said = sentence(found[row["message"]].verdict)
    assert said.endswith("Whether it went on, the captures cannot say: frames are lost there.")
    assert "a FinalAck of a later message of its sequence said that this one came too" in told(
        found[covered["message"]]
    )
