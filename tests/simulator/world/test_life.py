"""Each kind of event really takes place in the worlds of some seeds: it is not only drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.simulator.world import Cable, Consumer, Fault, draw, simulate
from mqproto.simulator.world.run import run
from mqproto.simulator.world.scenarios.scenario import Counters
from mqproto.simulator.world.scenarios.traffic import KINDS, QUEUES
from mqproto.simulator.world.world import World
from mqproto.transfer.cursors import LAST_NUMBER, TRANSACTION_LIMIT
from mqproto.wire import MessageClass
from tests.simulator.world.worlds import a_burst, a_chain


def test_several_consumers_of_a_queue_give_back_in_any_order() -> None:
    scenario = draw(105)
    assert any(consumer.holds_ms for consumer in scenario.consumers)
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["given back behind others"] > 0


@pytest.mark.parametrize("holds_ms", [(), (10, 300, 100)])
def test_a_consumer_holds_what_it_has_as_long_as_it_is_its_turn_to(holds_ms: tuple[int, ...]) -> None:
    """The first consumer gives its messages back last."""
    common = Consumer(node="c", queue="orders", limit=2, rolls_back_every=1)
    consumers = (replace(common, hold_ms=500), replace(common, holds_ms=holds_ms, hold_ms=5))
    result = simulate(a_chain(a_burst(count=8, together=True), consumers=consumers))
    assert result.breach is None
    assert result.tally["received"] == 8
    assert result.tally["given back behind others"] > 0


def test_what_is_over_leaves_gaps_that_are_bridged_and_bridged_again() -> None:
    result = simulate(draw(16))
    assert result.breach is None
    assert result.tally["bridged"] > 0
    assert result.tally["bridged again"] > 0


def test_a_queue_fills_and_turns_messages_away_and_takes_more_when_it_is_empty_again() -> None:
    result = simulate(
        a_chain(
            a_burst(count=6, size_bytes=1_000),
            a_burst(at_ms=3_000, count=2, size_bytes=1_000),
            consumers=(Consumer(node="c", queue="orders", begins_ms=1_000),),
            quota_bytes=3_000,
        )
    )
    assert result.breach is None
    assert result.tally["turned away from a full queue"] == 4
    assert result.tally["received"] == 4
    result = simulate(draw(16))
    assert result.breach is None
    assert min(result.tally["turned away from a full queue"], result.tally["received"]) > 0


def test_an_operator_deletes_what_is_sent_and_not_acknowledged() -> None:
    result = simulate(draw(181))
    assert result.breach is None
    assert result.tally["fault purge outgoing"] > 0
    assert result.tally["left an outgoing queue that was purged"] > 0
    fault = Fault(at_ms=60, kind="purge outgoing", where="a")
    blocked = Fault(at_ms=1, kind="stall", where="a-b", for_ms=2_000)
    letters = simulate(a_chain(a_burst(kind="journaled", count=3), faults=(blocked, fault)))
    assert letters.breach is None
    assert letters.tally["dead letter"] == 3


def test_poison_is_given_back_until_a_consumer_has_had_enough() -> None:
    result = simulate(draw(17))
    assert result.breach is None
    assert result.tally["poison rejected"] > 0
    consumer = Consumer(node="c", queue="orders", chokes_every=3, gives_up_after=4, pause_ms=10)
    result = simulate(a_chain(a_burst(kind="journaled", count=6), consumers=(replace(consumer, limit=1),)))
    assert result.breach is None
    assert result.tally["rolled back"] == 2 * 3
    assert result.tally["poison rejected"] == result.tally["dead letter"] == 2
    assert result.tally["received"] == 4


def test_a_link_is_gone_for_good_and_what_waited_behind_it_goes_back_and_around() -> None:
    result = simulate(draw(5))
    assert result.breach is None
    assert result.tally["came back to its source"] > 0
    links = tuple(Cable(one=one, other=other) for one, other in ("ab", "bc", "cd", "ad"))
    world = World(
        a_chain(
            a_burst(count=3, at_ms=1_010),
            a_burst(kind="recoverable", count=3, at_ms=1_010),
            nodes=("a", "b", "c", "d"),
            links=links,
            faults=(
                Fault(at_ms=1_000, kind="stall", where="b-c", for_ms=900),
                Fault(at_ms=1_500, kind="cut", where="b-c", for_ms=1_000),
            ),
        )
    )
    assert world.way("a", "c") == ["a", "b", "c"]
    result = run(world)
    assert world.way("a", "c") == ["a", "d", "c"]
    assert result.breach is None
    assert result.tally["came back to its source"] == 6
    assert result.tally["received"] == 6
    assert world.lines["b-c"].is_cut


def test_many_messages_are_over_at_once_and_leave_by_small_pages() -> None:
    scenario = draw(82)
    assert scenario.settings["resident_messages"] < 5
    assert any(consumer.begins_ms == scenario.storm_ms - 1 for consumer in scenario.consumers)
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["core expired"] > 2 * scenario.settings["resident_messages"]


def test_a_neighbour_saves_some_of_what_came_and_says_which() -> None:
    scenario = a_chain(
        a_burst(count=30),
        a_burst(kind="recoverable", count=30),
        faults=(Fault(at_ms=1, kind="sparse", where="b", for_ms=1_000),),
        settings={"resend_timeouts_short_s": 1, "try_connect_interval_ms": 200},
    )
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["received"] == 60
    assert result.tally["sparse acknowledgment"] > 0
    assert result.tally["not saved, and not said to be"] > 0
    result = simulate(draw(43))
    assert result.breach is None
    assert result.tally["sparse acknowledgment"] > 0


def test_a_history_is_full_and_what_it_has_forgotten_may_come_again() -> None:
    result = simulate(draw(277))
    assert result.breach is None
    assert result.tally["came again when it was forgotten"] > 0


@pytest.mark.parametrize("kind", ["transactional", "journaled", "recoverable", "acknowledged", "express"])
@pytest.mark.parametrize(
    "counters",
    [
        Counters(session=2**16 - 3),
        Counters(session=2**15 - 3),
        Counters(sequence=2**31 - 3),
        Counters(message_id=2**32 - 3),
    ],
    ids=str,
)
def test_counters_wrap_and_nothing_is_lost(kind: str, counters: Counters) -> None:
    faults = (
        Fault(at_ms=15, kind="kill", where="a", for_ms=100),
        Fault(at_ms=500, kind="impatient", where="a"),
    )
    result = simulate(a_chain(a_burst(kind=kind, count=9), counters=counters, faults=faults))
    assert result.breach is None
    assert result.tally["received"] == 9 or kind == "express"


def test_a_sequence_comes_to_the_end_of_its_numbers_and_begins_anew_when_all_are_acknowledged() -> None:
    counters = Counters(sequence=LAST_NUMBER - TRANSACTION_LIMIT - 3)
    bursts = [a_burst(at_ms=at_ms, count=3) for at_ms in (10, 20, 3_000)]
    result = simulate(a_chain(*bursts, counters=counters))
    assert result.breach is None
    assert (result.tally["refused at once"], result.tally["received"]) == (3, 6)
    drawn = [seed for seed in range(20) if draw(seed).counters is not None]
    assert drawn
    assert [simulate(draw(seed)).breach for seed in drawn[:2]] == [None, None]


@pytest.mark.long
def test_an_operator_asks_in_mid_storm_and_is_told_what_is_so() -> None:
    asked = Fault(at_ms=15, kind="ask", where="a", for_ms=100)
    blocked = Fault(at_ms=1, kind="refuse", where="b-c", for_ms=2_000)
    faults = (asked, replace(asked, where="b"), replace(asked, where="c", at_ms=2_500), blocked)
    result = simulate(a_chain(a_burst(count=9), a_burst(kind="express", count=3), faults=faults))
    assert result.breach is None
    assert result.tally["an operator was answered"] == 12 + 3, "and each node when all is at rest"
    result = simulate(draw(4))
    assert result.breach is None
    assert result.tally["an operator was answered"] > 0


def test_what_is_rejected_while_a_flush_lasts_is_not_missed_by_an_operator_who_asks_meanwhile() -> None:
    consumers = (Consumer(node="c", queue="orders", limit=1, rejects_every=1),)
    slow = Fault(at_ms=1, kind="slow disk", where="c", for_ms=3_000, value=20)
    asked = (Fault(at_ms=at_ms, kind="ask", where="c", for_ms=40) for at_ms in range(5, 400, 40))
    result = simulate(a_chain(a_burst(count=6), consumers=consumers, faults=(slow, *asked)))
    assert result.breach is None
    assert result.tally["rejected"] == 6
    assert result.tally["an operator was answered"] > 6


def test_a_node_knows_as_many_senders_as_it_may_and_more_wait_until_it_may_know_them() -> None:
    bursts = a_burst(count=3), a_burst(source="b", count=3, at_ms=100)
    settings = {"maximum_sequences": 1, "try_connect_interval_ms": 200}
    result = simulate(a_chain(*bursts, settings=settings))
    assert result.breach is None
    assert result.tally["received"] == 6
    assert all(message.accepted_ms < 200 for message in result.messages)
    assert result.end_ms > 5_000


def test_a_queue_is_deleted_with_what_is_in_it_and_declared_anew() -> None:
    result = simulate(
        a_chain(
            a_burst(count=4),
            a_burst(count=3, at_ms=1_200),
            a_burst(count=2, at_ms=4_000),
            consumers=(Consumer(node="c", queue="orders", limit=1, hold_ms=5_000),),
            faults=(Fault(at_ms=1_000, kind="delete", where="c", for_ms=1_000),),
            settings={"resend_timeouts_short_s": 1, "try_connect_interval_ms": 200},
        )
    )
    assert result.breach is None
    assert result.tally["ended in its queue"] == 4
    assert result.tally["received"] == 2
    assert sum(bool(message.told) for message in result.messages) >= 3


def test_a_node_that_is_paused_and_ends_as_the_calm_begins_goes_on_when_it_is_back() -> None:
    scenario = a_chain(
        *(a_burst(source="c", target="b", kind="final ack", at_ms=at_ms) for at_ms in (4_400, 4_800)),
        nodes=("b", "c"),
        links=(Cable(one="c", other="b"),),
        faults=(
            Fault(at_ms=1_000, kind="slow disk", where="b", for_ms=5_000, value=2),
            Fault(at_ms=4_750, kind="stop", where="c", for_ms=250),
            Fault(at_ms=4_999, kind="hold", where="b", for_ms=1),
            Fault(at_ms=4_999, kind="stop", where="b"),
        ),
    )
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["received"] == 2


def test_a_refusal_on_a_connection_that_its_sender_has_lost_already_is_counted_once() -> None:
    sent_ms = (
        *(3_000, 390, 1_000, 900, 1_000, 200, 2_000, 2_000, 800, 1_000, 1_000),
        *(3_000, 320, 200, 100, 40, 100, 200, 50, 300, 200, 50),
    )
    scenario = a_chain(
        *(a_burst(target="b", at_ms=at_ms, size_bytes=40, priority=3) for at_ms in sent_ms),
        seed=5_010_303,
        nodes=("a", "b"),
        links=(Cable(one="a", other="b", latency_ms=5, jitter_ms=3, cut_per_mille=200),),
        faults=(
            Fault(at_ms=0, kind="picky", where="b", value=12),
            Fault(at_ms=40, kind="stall", where="a-b", for_ms=100),
            Fault(at_ms=1_950, kind="half open", where="a-b"),
        ),
        settings={"window_size": 1, "try_connect_interval_ms": 1_000},
        storm_ms=3_001,
    )
    assert simulate(scenario).breach is None


def test_a_message_takes_the_cheapest_way_and_another_when_that_is_gone() -> None:
    links = tuple(Cable(one=one, other=other) for one, other in ("ab", "bc", "cd", "ad"))
    scenario = a_chain(nodes=("a", "b", "c", "d"), links=links, costs={"b-c": 5})
    world = World(scenario)
    assert world.way("a", "c") == ["a", "d", "c"]
    world.take_off_the_map("a-d")
    assert world.way("a", "c") == ["a", "b", "c"]
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["received"] == 5


def test_a_consumer_that_asks_before_its_time_is_refused_and_loses_nothing() -> None:
    consumers = (Consumer(node="c", queue="orders", limit=2, asks_twice=True),)
    result = simulate(a_chain(a_burst(count=6), consumers=consumers))
    assert result.breach is None
    assert result.tally["received"] == 6
    assert result.tally["asked twice"] > 3


def test_a_message_that_a_node_refuses_is_set_aside_and_all_others_arrive() -> None:
    """The message is tried alone, and is identified when others get through.

    The messages that prove the refusal arrive in the calm phase.
    """
    for where in ("b", "c"):
        scenario = replace(
            a_chain(a_burst(count=5), a_burst(at_ms=100, count=5)),
            faults=(Fault(at_ms=0, kind="picky", where=where, value=0),),
        )
        result = simulate(scenario)
        assert result.breach is None
        assert result.tally["note message-set-aside"] == 1
        [refused] = [message for message in result.messages if not message.receipts]
        assert refused.body.startswith(b"0.0 ")


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("recoverable", Fault(at_ms=1_100, kind="cut", where="a-b", for_ms=100)),
        ("express", Fault(at_ms=1_000, kind="reroute", where="a")),
    ],
    ids=["stored", "in memory"],
)
def test_what_a_node_refuses_is_found_also_where_its_source_sends_all_else_by_another_way(
    kind: str, fault: Fault
) -> None:
    """Only messages that leave from the same node as the refused one would prove the refusal, so some are sent from
    there.
    """
    links = tuple(Cable(one=one, other=other) for one, other in ("ab", "bc", "ad", "dc"))
    faults = (Fault(at_ms=0, kind="picky", where="c", value=0), fault)
    result = simulate(a_chain(a_burst(kind=kind), nodes=("a", "b", "c", "d"), links=links, faults=faults))
    assert result.breach is None
    assert result.tally["note message-set-aside"] == 1


@pytest.mark.parametrize(
    ("others", "letters"),
    [
        ((), [("a", MessageClass.NACK_BAD_DST_Q)]),
        ((Fault(at_ms=60, kind="sparse", where="b", for_ms=4_000),), []),
    ],
    ids=["refused first", "received first"],
)
def test_where_a_destination_has_refused_a_copy_and_taken_the_next_its_first_word_holds(
    others: tuple[Fault, ...], letters: list[tuple[str, int]]
) -> None:
    """Both reports arrive late, when the message is a dead letter in doubt. In one case, b has not saved the first
    report, and says so.
    """
    faults = (
        Fault(at_ms=50, kind="delete", where="c", for_ms=1_500),
        Fault(at_ms=90, kind="stall", where="a-b", value=2, for_ms=8_000),
        *others,
    )
    scenario = a_chain(
        a_burst(kind="recoverable"),
        a_burst(at_ms=100, kind="to receive"),
        seed=13,
        faults=faults,
        doubters=("a",),
        settings={"resend_timeouts_short_s": 1},
        storm_ms=12_000,
    )
    result = simulate(scenario)
    assert result.breach is None
    message = result.messages[1]
    assert set(message.refusals) == {MessageClass.NACK_BAD_DST_Q}
    assert (message.receipts, message.letters) == (1, letters)


def test_what_was_refused_may_go_again_when_the_answer_to_what_has_just_come_is_all_else_there_is() -> None:
    """The message from `a` arrives as the next session of `c` opens.

    It is acknowledged when everything else is under way.
    """
    scenario = a_chain(
        a_burst(source="c", target="a"),
        a_burst(at_ms=8_000, kind="final ack"),
        faults=(Fault(at_ms=0, kind="picky", where="b", value=0),),
        consumers=(Consumer(node="c", queue="orders", transactional=False),),
        settings={"try_connect_interval_ms": 1_000},
        storm_ms=20_000,
    )
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["note message-set-aside"] == 1


@pytest.mark.parametrize(
    ("where", "kind", "outcome", "received"),
    [
        ("a", "transactional", "lost", 7),
        ("b", "transactional", "to be repeated", 8),
        ("b", "recoverable", "lost", 7),
        ("c", "transactional", "lost", 7),
        ("c", "recoverable", "lost", 7),
    ],
)
def test_one_message_that_the_disk_has_otherwise_is_one_message(
    where: str, kind: str, outcome: str, received: int
) -> None:
    """All messages wait at one node when it dies.

    If the source of a message still has it, the message arrives again; if not, a dead letter reports it.
    """
    begins = Fault(at_ms=500, kind="kill", where=where, for_ms=100)  # What its log has is in its tables then.
    faults = [begins, Fault(at_ms=1_000, kind="hurt message", where=where, for_ms=100, value=3)]
    links = {"a": ["a-b", "b-c"], "b": ["b-c"], "c": []}[where]
    faults += [Fault(at_ms=0, kind="refuse", where=link, for_ms=2_000) for link in links]
    queue = KINDS[kind].queue
    consumers = tuple(
        Consumer(node="c", queue=declaration.name, begins_ms=3_000)
        for declaration in QUEUES
        if declaration.identifier == queue
    )
    settings = {"resident_messages": 1, "resend_timeouts_short_s": 1}
    result = simulate(
        a_chain(a_burst(kind=kind, count=8), consumers=consumers, faults=tuple(faults), settings=settings)
    )
    assert result.breach is None
    assert {name: count for name, count in result.tally.items() if name.startswith("hurt message")} == {
        f"hurt message, {outcome}": 1
    }
    assert result.tally["received"] == received
    assert result.tally["note message-damaged"] == 1


@pytest.mark.parametrize("step", range(4))
def test_a_start_that_dies_when_it_has_set_aside_what_is_hurt_leaves_it_so(step: int) -> None:
    faults = (
        Fault(at_ms=0, kind="refuse", where="a-b", for_ms=2_000),
        Fault(at_ms=500, kind="kill", where="a", for_ms=100),
        Fault(at_ms=990, kind="die in commit", where="a", for_ms=2_000, value=3 * step),
        Fault(at_ms=1_000, kind="hurt message", where="a", for_ms=100, value=3),
    )
    result = simulate(
        a_chain(a_burst(kind="final ack", count=8), faults=faults, settings={"resend_timeouts_short_s": 1})
    )
    assert result.breach is None
    assert min(result.tally["crash at its start"], result.tally["hurt message, lost"]) > 0


def test_what_was_lost_is_not_sent_again_while_a_neighbour_that_was_full_refuses_another() -> None:
    common = {"kind": "transactional to a stranger", "target": "b"}
    ones = (0, 164_000, 167_000, 74_000, 173_000, 67_000)
    result = simulate(
        a_chain(
            *(a_burst(at_ms=at_ms, size_bytes=40, **common) for at_ms in ones),
            a_burst(at_ms=53_000, count=4, size_bytes=5_000, **common),
            nodes=("a", "b"),
            links=(Cable(one="a", other="b"),),
            rooms={"b": 21_000},
            strangers=True,
            unmet=True,
            uncalled="a",
            consumers=(Consumer(node="b", queue="orders", limit=10, begins_ms=179_999),),
            faults=(
                Fault(at_ms=57_000, kind="picky", where="b", value=4),
                Fault(at_ms=60_000, kind="picky", where="b", value=3),
            ),
            settings={
                "resend_timeouts_medium_s": 3,
                "resend_timeouts_long_s": 10,
                "resend_timeouts_final_s": 60,
            },
            storm_ms=173_001,
        )
    )
    assert result.breach is None
    assert result.tally["note message-set-aside"] == 2


def test_what_is_hurt_in_its_queue_stays_beyond_its_time_until_it_is_read() -> None:
    faults = (
        Fault(at_ms=500, kind="kill", where="c", for_ms=100),
        Fault(at_ms=1_000, kind="hurt message", where="c", for_ms=100, value=3),
    )
    consumers = (Consumer(node="c", queue="orders", begins_ms=90_000),)
    bursts = a_burst(), a_burst(kind="to receive", count=8)
    settings = {"resident_messages": 1}
    result = simulate(
        a_chain(*bursts, consumers=consumers, faults=faults, settings=settings, storm_ms=95_000)
    )
    assert result.breach is None
    assert result.tally["hurt message, lost"] == 1


@pytest.mark.parametrize("step", [15, 17])
def test_a_log_that_goes_on_on_a_full_disk_has_the_name_that_a_killed_node_gave_it(step: int) -> None:
    """The power fails while a segment is made, then the disk is full, then the power fails again."""
    to_b = {"target": "b", "kind": "transactional to a stranger"}
    result = simulate(
        a_chain(
            a_burst(at_ms=6_000, size_bytes=40, **to_b),
            a_burst(at_ms=7_000, sizes_bytes=(40_000,), **to_b),
            nodes=("a", "b"),
            links=(Cable(one="a", other="b"),),
            consumers=(Consumer(node="b", queue="orders", limit=10, transactional=True, begins_ms=10_000),),
            faults=(
                Fault(at_ms=7_000, kind="die in commit", where="b", value=step),
                Fault(at_ms=7_000, kind="full disk", where="b", for_ms=7_500),
                Fault(at_ms=13_000, kind="die in commit", where="b", value=4),
            ),
            strangers=True,
            unmet=True,
            seed=1_501_102,
            storm_ms=20_000,
        )
    )
    assert result.breach is None
