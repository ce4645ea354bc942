"""A line that is repeated is counted; nothing is lost, and new lines are printed at once."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.simulator.base.repeats import (
    FIRST_S,
    KINDS,
    KINDS_OF_PEER,
    LIMIT,
    LONGEST_S,
    QUIET_S,
    Line,
    Repeats,
)

DOWN = {"peer": "127.0.0.2", "reason": "connection refused by 127.0.0.2:1801"}


def times(line: Line) -> int:
    """Return how many times the event of a line has happened."""
    return int(line[1].get("repeated", 1))


def test_a_neighbour_that_is_down_for_a_day_costs_a_few_lines_and_its_return_tells_the_rest() -> None:
    repeats, told = Repeats(), list[Line]()
    for number in range(5 * 86_400):
        told += repeats.lines("session-closed", {"session": number, **DOWN}, number / 5)
    assert len(told) < 2 + 6 + 86_400 / LONGEST_S
    assert told[0] == ("session-closed", {"session": 0, **DOWN})
    assert told[1][1]["repeated"] == FIRST_S * 5
    back = list(repeats.lines("session-open", {"session": 1, "peer": "127.0.0.2:1801"}, 86_400))
    assert [name for name, _ in back] == ["session-closed", "session-open"]
    assert sum(map(times, told + back[:1])) == 5 * 86_400


def test_what_was_quiet_for_a_while_is_told_at_once() -> None:
    repeats = Repeats()
    assert len(list(repeats.lines("a", DOWN, 0))) == 1
    assert not list(repeats.lines("a", DOWN, 1))
    over, again = repeats.lines("a", DOWN, 2 + QUIET_S)
    assert (times(over), times(again)) == (1, 1)
    assert "repeated" not in again[1]


def test_a_line_about_a_message_is_always_written() -> None:
    repeats = Repeats()
    facts = {"message": "one\\1", "peer": "127.0.0.2"}
    assert [list(repeats.lines("arrived", facts, 0)) for _ in range(3)] == [[("arrived", facts)]] * 3


steps = st.lists(
    st.tuples(
        st.sampled_from(["session-closed", "session-open", "resend"]),
        st.integers(0, 3),
        st.one_of(st.floats(0, 1), st.floats(0, 2 * LONGEST_S)),
    )
)


@given(steps=steps)
def test_whatever_comes_is_written_or_counted(steps: list[tuple[str, int, float]]) -> None:
    repeats, told, now_s = Repeats(), list[Line](), 0.0
    for number, (name, peer, pause_s) in enumerate(steps):
        now_s += pause_s
        told += repeats.lines(name, {"session": number, "peer": f"127.0.0.{peer}"}, now_s)
    told += repeats.rest()
    for name in ("session-closed", "session-open", "resend"):
        for peer in range(4):
            came = sum((name, peer) == step[:2] for step in steps)
            assert came == sum(
                times(line) for line in told if (line[0], line[1]["peer"]) == (name, f"127.0.0.{peer}")
            )


def test_lines_about_nobody_that_are_all_different_take_no_memory() -> None:
    repeats = Repeats()
    told = [line for number in range(3 * LIMIT) for line in repeats.lines("x", {"reason": str(number)}, 0)]
    assert len(told) == 3 * LIMIT
    assert len(repeats._series) == LIMIT


def test_a_stranger_who_varies_what_he_does_costs_a_few_lines_and_others_have_theirs() -> None:
    repeats, told = Repeats(), list[Line]()
    for number in range(20_000):
        facts = {"peer": "127.0.0.9", "message_id": number}
        told += repeats.lines("message-refused", facts, number / 1_000)
    told += repeats.lines("message-refused", DOWN, 20)
    assert len(told) == KINDS_OF_PEER + 1 + 1
    assert told[-1] == ("message-refused", DOWN)
    told += repeats.rest()
    assert sum(map(times, told)) == 20_000 + 1
    assert told[-1][1]["facts"] == "those of the last"


def test_lines_that_are_counted_as_one_have_their_section_in_common() -> None:
    repeats, told = Repeats(), list[Line]()
    for number in range(10_000):
        facts = {
            "peer": f"10.0.{number % 100}.1",
            "section": "3.1.5.1.3" if number % 10 else "3.1.6.6",
            "reason": str(number),
        }
        told += repeats.lines("session-closed", facts, number / 1_000)
    assert len(told) <= KINDS + 2 * (100 + 1)
    told += repeats.rest()
    assert sum(times(line) for line in told if line[1]["section"] == "3.1.6.6") == 1_000
    assert sum(map(times, told)) == 10_000


def test_where_no_host_is_known_the_lines_about_one_queue_manager_are_few() -> None:
    repeats, told = Repeats(), list[Line]()
    for number in range(20_000):
        facts = {"source": f"GUID {number % 2}", "queue": f"DIRECT=OS:made-up-host\\q{number}"}
        told += repeats.lines("stranger-not-answered", facts, number / 1_000)
    assert len(told) == 2 * (KINDS_OF_PEER + 1)
    told += repeats.rest()
    assert sum(map(times, told)) == 20_000


def test_any_number_of_strangers_who_vary_what_they_do_cost_some_lines_and_a_neighbour_has_its_own() -> None:
    repeats, told = Repeats(lambda host: host == DOWN["peer"]), list[Line]()
    for minute in range(3):
        for number in range(5_000):
            facts = {"peer": f"10.0.{number % 100}.1", "message_id": f"{minute} {number}"}
            told += repeats.lines("message-refused", facts, 60 * minute + number / 100)
    assert len(told) <= 3 * (2 * KINDS + 2)
    assert list(repeats.lines("message-refused", DOWN, 180)) == [("message-refused", DOWN)]
    told += repeats.rest()
    assert sum(map(times, told)) == 15_000
