"""Statements about links and nodes: they never say why a connection ended, because a capture does not show that."""

from __future__ import annotations

from mqproto.captures.decode.views.links import LONGEST, Happening, happenings
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.net.turns import Turn, Turned

A, B, C = (Endpoint(f"10.0.0.{place}", 1801) for place in (1, 2, 3))
FROM_A, FROM_B = A._replace(port=50_000), B._replace(port=50_000)
ENDS = {FROM_A: 0, B: 1, FROM_B: 1, C: 2}
KNOWN = {0: (0, 1), 1: (1, 2)}


def turn(
    source: Endpoint, destination: Endpoint, what: Turned, connection: int = 0, comment: str = ""
) -> Turn:
    return Turn(connection, connection, source, destination, what, comment)


def found(*turns: Turn) -> list[Happening]:
    return happenings(turns, ENDS, lambda _: True, known=KNOWN)


def test_a_node_has_no_connection_left_when_it_has_reset_the_last_one_itself() -> None:
    first, second = turn(B, FROM_A, Turned.RESETS), turn(FROM_B, C, Turned.RESETS, 1)
    assert [each.leaves for each in found(first)] == [False]
    assert [each.leaves for each in found(first, second)] == [False, True]


def test_a_connection_that_begins_later_was_not_there_before() -> None:
    later = turn(A._replace(port=50_001), B, Turned.ANSWERS, 2)
    turns = [turn(B, FROM_A, Turned.RESETS), turn(FROM_B, C, Turned.RESETS, 1), later]
    assert [each.leaves for each in happenings(turns, ENDS, lambda _: True, known=KNOWN | {2: (0, 1)})][
        :2
    ] == [
        False,
        True,
    ]


def test_nothing_is_said_of_a_node_whose_link_was_cut_and_of_the_other_one() -> None:
    cut = turn(FROM_B, C, Turned.RESETS, 1, "the link was cut")
    [happening] = found(cut, turn(C, FROM_B, Turned.RESETS, 1, "the link was cut"))
    assert (happening.text, happening.is_cut, happening.directed) == ("the link was cut", True, False)
    assert not happening.leaves


def test_another_port_of_a_host_is_of_its_column_where_it_has_but_one() -> None:
    elsewhere = A._replace(port=50_009)
    assert [(each.start, each.end) for each in found(turn(B, elsewhere, Turned.REFUSES, 7))] == [(1, 0)]
    both = ENDS | {A._replace(port=1_802): 2}
    assert happenings([turn(B, elsewhere, Turned.REFUSES, 7)], both, lambda _: True) == []
    assert found(turn(Endpoint("10.9.9.9", 1801), B, Turned.FINISHES, 8)) == []


def test_what_a_frame_says_is_harmless_and_short() -> None:
    [happening] = found(turn(B, FROM_A, Turned.RESETS, comment="\x1b[2J" + "x" * 500))
    assert happening.text.isprintable()
    assert len(happening.text) == LONGEST


def test_who_is_connected_again_is_back_and_who_asks_alone_is_not() -> None:
    asks = turn(A._replace(port=50_001), B, Turned.OPENS, 2)
    assert found(asks) == []
    answer = turn(B, A._replace(port=50_001), Turned.ANSWERS, 2)
    assert [(each.start, each.is_back) for each in found(asks, answer)] == [(1, True), (0, True)]
