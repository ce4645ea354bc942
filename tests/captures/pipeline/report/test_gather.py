"""Facts agree with the tables, both for samples whose truth is known and for rows made for tests."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import pytest

from mqproto.captures.drawing.placing import ranks
from mqproto.captures.pipeline.report.counts.judgments import EXAMPLES
from mqproto.captures.pipeline.report.counts.messages import ARRIVALS_EACH
from mqproto.captures.pipeline.report.facts.facts import slowest
from mqproto.captures.pipeline.report.facts.overtime import STEPS, nice_step_ns
from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.page import page
from mqproto.captures.pipeline.report.summary import lines
from mqproto.captures.pipeline.tables.tables import Tables, TablesError
from tests.captures.pipeline.report.tables import BEGIN_NS, Rows, capture, history, hop, hops_of, made_up

MILLISECOND = 10**6


def test_messages_that_waited_behind_a_gap_are_told_of_as_they_went(gap_held: Tables) -> None:
    facts = gather(gap_held)
    messages = facts.messages
    assert (messages.count, messages.outcomes, messages.resends) == (9, {"confirmed": 9}, 11)
    assert {row["label"] for row in messages.slowest[:3]} == {"lost once"}
    assert messages.slowest[0]["latency_ns"] == messages.arrived.most == 5_812 * MILLISECOND
    assert messages.every
    assert messages.stories.keys() == {row["message"] for row in messages.embedded}


def test_hops_are_counted_with_how_long_messages_waited(gap_held: Tables) -> None:
    first, second = gather(gap_held).routes.hops
    assert (first.from_label, first.to_label) == ("127.0.0.1", "127.0.0.2:1801")
    assert (first.messages, first.copies, first.waited.count) == (9, 16, 0)
    assert (second.messages, second.copies, second.waited.count) == (9, 13, 9)
    assert (second.waited.least, second.waited.most) == (2 * MILLISECOND, 5_812 * MILLISECOND)


def test_a_gap_is_with_its_sequence_on_the_hop_where_it_was(gap_held: Tables) -> None:
    sequences = gather(gap_held).sequences
    assert (sequences.count, sequences.gaps, sequences.gaps_open) == (1, 1, 0)
    [first, second] = sequences.shown
    assert first.gaps == []
    assert [(gap["first_number"], gap["last_number"]) for gap in second.gaps] == [(3, 5)]


def test_traffic_has_every_packet_in_one_step(gap_held: Tables) -> None:
    traffic = gather(gap_held).traffic
    assert traffic is not None
    assert sum(map(sum, traffic.packets.values())) == gap_held.rows("packets")
    assert sum(traffic.size_bytes) == sum(gap_held.read("packets")["size_bytes"].to_pylist())
    assert sum(traffic.kinds.values()) == gap_held.rows("packets")


def test_examples_of_findings_name_their_message_and_their_time(gap_held: Tables) -> None:
    found = {each.code: each for each in gather(gap_held).judgments.found}
    assert {code: each.count for code, each in found.items()} == {"resend": 11, "gap": 1, "gap-filled": 1}
    packets = {row["number"]: row for row in gap_held.read("packets").to_pylist()}
    for example in found["resend"].examples:
        assert example.number is not None
        packet = packets[example.number]
        assert (example.message, example.time_ns) == (packet["message"], packet["time_ns"])
        assert example.place == (packet["file"], packet["frame"])
        assert example.others or example in found["resend"].examples[EXAMPLES:]
        for number, place in example.others.items():
            assert place == (packets[number]["file"], packets[number]["frame"])
            assert packets[number]["message"] == packet["message"]


def test_messages_that_expired_are_told_apart_from_those_that_are_slow(dead_letters: Tables) -> None:
    messages = gather(dead_letters).messages
    assert messages.outcomes == {"confirmed": 7, "expired": 3}
    assert [row["outcome"] for row in messages.failed] == ["expired"] * 3
    assert not {row["message"] for row in messages.failed} & {row["message"] for row in messages.slowest}


def test_of_many_messages_the_worst_alone_can_be_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.captures.pipeline.report.counts.messages.KEPT", 5)
    rows = [history(number) for number in range(40)]
    rows[7] |= {"outcome": "in flight", "arrived_ns": None, "latency_ns": None, "order_acked_ns": None}
    rows[30] |= {"latency_ns": 10**12}
    rows[31] |= {"order_acked_ns": rows[31]["first_ns"] + 10**12}
    rows[32] |= {"resends": 3}
    hops = [each for row in rows for each in hops_of(row)]
    tables = made_up(tmp_path / "out", {"histories": rows, "hops": hops}, part_rows=13)
    messages = gather(tables, embedded_limit=39).messages
    assert not messages.every
    assert [row["message"] for row in messages.stuck] == [rows[7]["message"]]
    assert messages.slowest[0]["message"] == rows[30]["message"]
    assert messages.latest[0]["message"] == rows[31]["message"]
    assert [row["message"] for row in messages.resent] == [rows[32]["message"]]
    assert messages.stories.keys() == {row["message"] for row in messages.embedded}
    assert len(messages.embedded) == 1 + 5 + 2
    assert gather(tables, embedded_limit=40).messages.every


def test_few_messages_with_very_many_arrivals_are_not_all_in_the_page_either(tmp_path: Path) -> None:
    rows = [history(number) for number in range(3)]
    arrival = {"message": rows[0]["message"], "to_key": "b-key", "series": "day.pcapng"}
    arrivals = [arrival | {"row_id": number, "number": number} for number in range(3 * ARRIVALS_EACH)]
    few: dict[str, Rows] = {"histories": rows, "duplicates": arrivals}
    many = few | {"duplicates": [*arrivals, arrival | {"row_id": 99, "number": 99}]}
    assert gather(made_up(tmp_path / "few", few), embedded_limit=3).messages.every
    assert not gather(made_up(tmp_path / "many", many), embedded_limit=3).messages.every


def test_of_more_hops_than_anybody_has_the_slowest_and_those_with_most_messages_have_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.captures.pipeline.report.counts.routes.HOPS_LIMIT", 2)
    letters = "abcdefghijklmnopqrstuvwxyz"
    ends = [*map("".join, pairwise(letters)), "ab", "ab", "yz", "yz"]
    hops = [hop(f"m{number}", 1, each, BEGIN_NS) for number, each in enumerate(ends)]
    for row in hops[:9]:
        row |= {"waited_ns": 5, "acknowledged_ns": BEGIN_NS + 5}
    hops[11] |= {"waited_ns": 10**12}
    hops[17] |= {"acknowledged_ns": BEGIN_NS + 10**11}
    tables = made_up(tmp_path / "out", {"captures": [capture()], "hops": hops}, part_rows=2)
    facts = gather(tables)
    shown = {each.from_label + each.to_label: each.messages for each in facts.routes.hops}
    assert shown == {"ab": 3, "yz": 3, "lm": 1, "rs": 1}
    assert facts.routes.left_out == len(ends) - sum(shown.values())
    assert [each.from_label for each in slowest(facts.routes.hops)[:2]] == ["l", "r"]
    for text in (page(facts), "\n".join(lines(facts))):
        assert "l" in text
        assert "16.7 min" in text


def test_the_hop_with_most_messages_has_a_row_however_many_hops_come_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.captures.pipeline.report.counts.routes.HOPS_LIMIT", 1)
    seldom = list(map("".join, combinations("abcdefghij", 2)))
    ends = [each for low in range(0, len(seldom), 5) for each in (*seldom[low : low + 5], "zy")]
    hops = [hop(f"m{number}", 1, each, BEGIN_NS) for number, each in enumerate(ends)]
    [found] = gather(made_up(tmp_path / "out", {"hops": hops}, part_rows=6)).routes.hops
    assert (found.from_label, found.messages) == ("z", 9)


def test_queue_managers_are_ranked_from_where_most_messages_come(tmp_path: Path) -> None:
    ends = ["ab", "ab", "ab", "bc", "bd", "ba", "xy"]
    hops = [hop(f"m{number}", 1, each, BEGIN_NS) for number, each in enumerate(ends)]
    routes = gather(made_up(tmp_path / "out", {"hops": hops})).routes
    assert {key[0]: rank for key, rank in ranks(routes.hops).items()} == {
        "a": 0,
        "b": 1,
        "c": 2,
        "d": 2,
        "x": 0,
        "y": 1,
    }


@pytest.mark.parametrize("span_ns", [0, 1, 999, 10**9, 90 * 10**9, 86_400 * 10**9, 2**63 - 1])
def test_steps_are_few_and_long_enough(span_ns: int) -> None:
    step_ns = nice_step_ns(span_ns // STEPS + 1)
    assert span_ns // step_ns < STEPS


def test_tables_of_a_capture_without_packets_say_so(tmp_path: Path) -> None:
    facts = gather(made_up(tmp_path / "out", {"captures": [capture(frames=3, other_frames=3)]}))
    assert facts.traffic is None
    assert (facts.captured.files, facts.captured.frames, facts.messages.count) == (1, 3, 0)


def test_a_folder_without_tables_is_refused_by_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match="run mqproto analyse CAPTURES --out"):
        gather(Tables(tmp_path / "nothing"))
