"""Everything that leaves: queues and sequences for each destination, and numbers that are never used twice."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.manager.ownsequences import host_of
from mqproto.messages.destinations import Destination
from mqproto.routing import NextHop, Routes
from mqproto.simulator.storage.disk import Disk
from mqproto.transfer.cursors import LAST_NUMBER, TRANSACTION_LIMIT
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.succession import time_stamp_of
from mqproto.turn.effects import QueueKind
from mqproto.turn.pending import MESSAGE_ID_BLOCK
from mqproto.wire import Guid, decode_message, guid_text
from tests.observing import messages
from tests.pair import Net, at, chain, direct, guid_of, queue

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)


def a_pair(settings: Settings | None = None) -> Net:
    return chain("a", "c", queues=[ORDERS, NOTES], settings=settings)


# Numbers


@pytest.mark.spec("[MS-MQQB] 3.1.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.1")
def test_message_ids_count_up_and_are_never_given_twice_however_often_the_node_crashes() -> None:
    net = a_pair()
    given: list[int] = []
    for _ in range(5):
        given += [net.send("a", at("c", 17), "x") for _ in range(3)]
        net.run()
        net.kill("a")
        net.start("a")
    assert given[:3] == [1, 2, 3]
    assert given == sorted(set(given))
    assert given[3] == MESSAGE_ID_BLOCK + 1, "what was left of a block is not used"


@pytest.mark.spec("[MS-MQQB] 3.1.1.3")
def test_message_ids_roll_over_at_32_bits() -> None:
    net = a_pair()
    numbers = net.nodes["a"].up.inspect().outbound.numbers
    numbers._next_message_id = numbers._message_id_ceiling = 2**32 - 1
    assert [numbers.next_message_id() for _ in range(3)] == [2**32 - 1, 0, 1]


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
def test_each_destination_has_a_time_stamp_of_its_own_the_same_in_every_store() -> None:
    net = a_pair()
    for identifier in (16, 18, 19):
        net.send("a", at("c", identifier), "x", transactional=True)
    net.run()
    net.kill("a")
    net.start("a")
    net.send("a", at("c", 20), "x", transactional=True)
    net.run()
    stamps = [row.time_stamp for row in net.nodes["a"].store.outgoing.values()]
    assert stamps == [time_stamp_of(at("c", identifier).name) for identifier in (16, 18, 19, 20)]
    assert len(set(stamps)) == 4
    assert all(net.now.utc_s < stamp < 2**31 for stamp in stamps)


QUICK = Settings(
    try_connect_interval_ms=200,
    resend_timeouts_short_s=1,
    resend_timeouts_medium_s=2,
    resend_timeouts_long_s=3,
    resend_timeouts_final_s=4,
)
SPELLINGS = (r"TCP:c\PRIVATE$\Orders", r"TCP:C\private$\ORDERS", r"TCP:c\PRIVATE$\orders")


def spelled(text: str) -> Destination:
    return Destination(f"DIRECT={text}", None, text, "c")


@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
def test_two_spellings_of_one_name_are_one_sequence_under_the_name_that_came_first() -> None:
    """A destination may distinguish upper and lower case in names, so all messages are sent under one spelling."""
    net = a_pair(QUICK)
    net.kill("c")
    for number in range(6):
        net.send("a", spelled(SPELLINGS[number % 3]), f"m{number}", transactional=True)
    net.run()
    net.kill("a")
    net.start("a", "c")
    net.send("a", spelled(SPELLINGS[2]), "m6", transactional=True)
    net.pass_ms(10_000)
    assert net.receive("c", "orders") == [b"m%d" % number for number in range(7)]
    names = {m.user.destination_queue for m in messages(net, "a", "c") if m.transaction is not None}
    assert names == {SPELLINGS[0]}
    stamps = {row.time_stamp for row in net.nodes["a"].store.outgoing.values()}
    assert stamps == {time_stamp_of(spelled(text).name) for text in SPELLINGS}
    assert len(net.nodes["c"].store.incoming) == 1
    assert net.nodes["a"].store.messages == {}


@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
@given(
    before=st.lists(
        st.tuples(st.sampled_from(SPELLINGS), st.booleans(), st.booleans()), min_size=1, max_size=12
    ),
    after=st.lists(st.sampled_from(SPELLINGS), max_size=4),
    is_lost=st.booleans(),
)
def test_what_a_store_of_layout_4_kept_under_several_spellings_arrives_and_new_messages_follow(
    before: list[tuple[str, bool, bool]], after: list[str], is_lost: bool
) -> None:
    """The store kept a sequence for each spelling; each had its own TimeStamp and its own AwaitingFinalACKTable.

    is_lost: whether the destination's store is lost in between, so that the new one does not know several of the
        sequences.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mqproto.manager.ownsequences.one_spelling", lambda name: name)
        patch.setattr("mqproto.transfer.succession.one_spelling", lambda name: name)
        net = a_pair(QUICK)
        for number, (text, final_ack, is_up) in enumerate(before):
            if is_up and net.nodes["c"].core is None:
                net.start("c")
            elif not is_up and net.nodes["c"].core is not None:
                net.kill("c")
            wants = final_ack and not is_lost
            net.send("a", spelled(text), f"{text} {number}", transactional=True, final_ack=wants)
            net.pass_ms(700 * is_up)
        if is_lost:
            net.kill("c")
    if is_lost:
        kept = [
            decode_message(row.packet).properties.message_body
            for row in net.nodes["a"].store.messages.values()
        ]
        net.nodes["c"].store = Disk()
    net.kill("a")
    if net.nodes["c"].core is None:
        net.start("c")
    net.start("a")
    for number, text in enumerate(after):
        net.send("a", spelled(text), f"after {number}", transactional=True)
    net.pass_ms(60_000)
    received = net.receive("c", "orders")
    sent = [f"{text} {number}".encode() for number, (text, _, _) in enumerate(before)]
    assert [body for body in received if body.startswith(b"after")] == [
        b"after %d" % n for n in range(len(after))
    ]
    if is_lost:
        sent = [body for body in sent if body in kept]
    assert sorted(received) == sorted([*sent, *(b"after %d" % n for n in range(len(after)))])
    for text in SPELLINGS:
        mine = text.encode() + b" "
        assert [b for b in received if b.startswith(mine)] == [b for b in sent if b.startswith(mine)]
    net.pass_ms(60_000)
    assert net.nodes["a"].store.messages == {}


def test_two_destinations_whose_time_stamps_would_be_the_same_have_one_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqproto.manager.ownsequences.time_stamp_of", lambda _: 2_000_000_000)
    net = a_pair()
    for identifier in (16, 18):
        net.send("a", at("c", identifier), "x", transactional=True)
    net.run()
    net.kill("a")
    net.start("a")
    net.pass_ms(2_000)
    stamps = [row.time_stamp for row in net.nodes["a"].store.outgoing.values()]
    assert stamps == [2_000_000_000, 2_000_000_001]
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


# Queues and their way


def test_what_has_no_way_waits_until_there_is_one() -> None:
    net = a_pair()
    node = net.nodes["a"]
    known, node.routes = node.routes, Routes()
    net.start("a")
    net.send("a", at("c"), "one", transactional=True)
    net.send("a", at("c", 17), "two", recoverable=True)
    net.pass_ms(60_000)
    assert {q.state for q in node.up.status().outgoing} == {"no route"}
    net.kill("a")
    node.routes = known
    net.start("a")
    net.pass_ms(1_000)
    assert net.receive("c", "orders") == [b"one"]
    assert net.receive("c", "notes") == [b"two"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
def test_an_order_ack_without_a_way_is_dropped_and_a_final_ack_waits() -> None:
    net = a_pair()
    node = net.nodes["c"]
    node.routes = Routes()
    net.start("c")
    net.send("a", at("c"), "one", transactional=True, final_ack=True)
    net.pass_ms(1_000)
    net.receive("c", "orders")
    net.pass_ms(1_000)
    assert [q.waiting for q in node.up.status().outgoing] == [1]
    assert node.store.waiting(QueueKind.OUTGOING) == 1


def test_a_sequence_whose_queue_for_final_acks_a_hurt_store_has_lost_gets_another() -> None:
    net = a_pair()
    node = net.nodes["a"]
    net.blocked.add(frozenset("ac"))
    net.cut("a", "c")
    net.send("a", at("c"), "one", transactional=True, final_ack=True)
    net.pass_ms(1_000)
    net.kill("a")
    node.store.queues = {
        number: row for number, row in node.store.queues.items() if row.kind is not QueueKind.FINAL
    }
    net.start("a")
    net.blocked.clear()
    net.pass_ms(20_000)
    assert net.receive("c", "orders") == [b"one"]
    net.pass_ms(20_000)
    assert node.store.messages == {}


@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
@pytest.mark.parametrize("by_manager", [False, True])
def test_a_direct_name_calls_its_host_also_after_a_restart(by_manager: bool) -> None:
    """`a` knows no route to that host name; at most it knows that a queue manager is there."""
    net = a_pair()
    node = net.nodes["a"]
    node.routes = Routes(managers=node.routes.managers)
    net.start("a")
    destination = direct("c")
    if by_manager:
        destination = type(destination)(destination.name, guid_of("c"), destination.queue, "c")
    net.blocked.add(frozenset("ac"))
    net.send("a", destination, "one", transactional=True)
    net.send(
        "a",
        type(destination)("x", destination.manager, r"TCP:c\private$\notes", "c"),
        "two",
        recoverable=True,
    )
    net.pass_ms(100)
    net.kill("a")
    net.start("a")
    net.blocked.clear()
    net.pass_ms(20_000)
    assert net.receive("c", "orders") == [b"one"]
    assert net.receive("c", "notes") == [b"two"]
    assert sum(q.waiting for q in node.up.status().outgoing) == 0


def test_a_host_without_a_route_belongs_to_the_manager_that_its_destination_names() -> None:
    net = a_pair()
    node = net.nodes["a"]
    node.routes = Routes()
    net.start("a")
    outbound = node.up.inspect().outbound
    assert outbound._hops_to_host("c", guid_of("c")) == (NextHop(guid_of("c"), "c"),)
    assert outbound._hops_to_host("c", None) == (NextHop(None, "c"),)


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
def test_acknowledgments_go_by_guid_where_the_address_of_a_direct_name_is_shared() -> None:
    """A direct name means the node that receives it, so the node in between would treat the acknowledgments as
    addressed to itself.
    """
    net = chain("a", "b", "c", queues=[ORDERS])
    net.route("a", "c", "c")
    net.route("c", "a", "b")
    node = net.nodes["c"]
    node.routes = Routes(managers=node.routes.managers)  # `c` cannot tell who calls from there.
    net.start("c")
    net.send("a", direct("c"), "one", transactional=True, final_ack=True)
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"one"]
    net.pass_ms(5_000)
    assert net.nodes["a"].store.messages == {}
    assert net.nodes["b"].up.status().forwarded == 2, "the OrderAck and the FinalAck"


@pytest.mark.parametrize(
    ("name", "host"),
    [
        (r"DIRECT=TCP:10.0.0.7\private$\q", "10.0.0.7"),
        (r"DIRECT=OS:server\q", "server"),
        ("PRIVATE=00000000-0000-0000-0000-000000000000\\10", None),
        ("PUBLIC=00000000-0000-0000-0000-000000000000", None),
    ],
)
def test_the_host_of_a_direct_format_name(name: str, host: str | None) -> None:
    assert host_of(name) == host


# Memory


def in_memory(net: Net, name: str) -> int:
    """Return the number of messages that all windows of a node hold together."""
    core = net.nodes[name].up
    outgoing = sum(len(q.window) for q in core.inspect().outbound)
    return outgoing + sum(len(lane.window) for q in core.inspect().queues for lane in q.lanes)


@pytest.mark.parametrize("kind", ["transactional", "recoverable", "express"])
def test_a_backlog_of_5000_costs_disk_and_not_memory(kind: str) -> None:
    settings = Settings(resident_messages=16, window_size=16)
    net = chain("a", "b", "c", queues=[ORDERS, NOTES], settings=settings)
    net.blocked.add(frozenset("ab"))
    total = 5_000
    destination = at("c", 16 if kind == "transactional" else 17)
    for number in range(total):
        flags = {} if kind == "express" else {kind: True}
        net.send("a", destination, str(number), **flags)
        if number % 500 == 0:
            net.run()
    net.run()
    assert in_memory(net, "a") <= 16
    assert len(net.nodes["a"].store.messages) >= total - 16, "express ones too, where memory is short"
    peak = 0

    def look(sender: str, receiver: str, chunk: bytes) -> None:
        nonlocal peak
        peak = max(peak, *(in_memory(net, name) for name in net.nodes))

    net.watch = look
    net.blocked.clear()
    net.pass_ms(30_000)
    assert peak <= 3 * 16 + 32, "a window for each queue, and what a lost session gives back"
    name = "orders" if kind == "transactional" else "notes"
    assert net.receive("c", name, 100) == [str(number).encode() for number in range(total)]
    net.pass_ms(5_000)
    assert all(not node.store.messages for node in net.nodes.values())


def test_express_messages_do_not_touch_the_disk_while_memory_suffices() -> None:
    net = a_pair()
    net.blocked.add(frozenset("ac"))
    commits = net.nodes["a"].store.commit_count
    for _ in range(20):
        net.send("a", at("c", 17), "x")
    net.run()
    assert net.nodes["a"].store.commit_count == commits + 1, "the block of message identifiers"
    assert net.nodes["a"].store.messages == {}


def test_express_messages_may_be_lost_in_a_crash_and_what_was_spilled_to_disk_is_not() -> None:
    net = a_pair(Settings(resident_messages=2))
    net.blocked.add(frozenset("ac"))
    for number in range(5):
        net.send("a", at("c", 17), str(number))
    net.run()
    net.kill("a")
    net.blocked.clear()
    net.start("a")
    net.pass_ms(1_000)
    assert net.receive("c", "notes") == [b"2", b"3", b"4"]


def test_queue_numbers_are_not_used_twice_and_towards_guids_the_name_tells_the_manager() -> None:
    net = a_pair()
    manager: Guid = guid_of("c")
    outbound = net.nodes["a"].up.inspect().outbound
    first, second = outbound.towards_manager(manager, 3), outbound.towards_host("c", 3)
    assert outbound.towards_manager(manager, 3) is first
    assert outbound.towards_host("c", 3) is second
    assert first.queue != second.queue
    assert outbound.queue(first.queue) is first
    assert outbound.queue(99) is None
    assert (first.name, second.name) == (guid_text(manager), "c")


@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
@given(
    asked=st.lists(
        st.tuples(st.sampled_from(["c", "d"]), st.integers(0, 7), st.booleans(), st.booleans()), max_size=20
    )
)
def test_each_destination_has_a_queue_for_each_priority_and_its_order_queue_has_its_own(
    asked: list[tuple[str, int, bool, bool]],
) -> None:
    outbound = a_pair().nodes["a"].up.inspect().outbound
    found: dict[tuple[str, int, bool, bool], OutgoingQueue] = {}
    for key in asked:
        name, priority, order, is_direct = key
        if is_direct:
            one = outbound.towards_host(name, priority, order=order)
        else:
            one = outbound.towards_manager(guid_of(name), priority, order=order)
        assert one.priority == priority
        assert found.setdefault(key, one) is one
    assert len({one.queue for one in found.values()}) == len(found)
    for one in found.values():
        assert one in outbound.named(one.name.upper())
        assert {other.name for other in outbound.named(one.name)} == {one.name}


@pytest.mark.parametrize("kind", ["transactional", "recoverable"])
def test_what_waits_keeps_its_priority_and_its_queue_over_a_restart(kind: str) -> None:
    net = a_pair()
    net.blocked.add(frozenset("ac"))
    destination = at("c", 16 if kind == "transactional" else 17)
    for priority in (1, 7):
        net.send("a", destination, str(priority), priority=priority, **{kind: True})
    net.run()
    node = net.nodes["a"]
    before = [(q.queue, q.name, q.priority, q.count) for q in node.up.inspect().outbound]
    net.kill("a")
    net.start("a")
    assert [(q.queue, q.name, q.priority, q.count) for q in node.up.inspect().outbound] == before
    assert [priority for _, _, priority, _ in before] == ([0] if kind == "transactional" else [1, 7])


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
def test_a_destination_that_is_paused_is_so_in_each_priority_also_in_those_to_come() -> None:
    net = a_pair()
    outbound = net.nodes["a"].up.inspect().outbound
    name = guid_text(guid_of("c"))
    outbound.hold(outbound.towards_manager(guid_of("c"), 3), on_hold=True)
    assert outbound.towards_manager(guid_of("c"), 5).on_hold
    assert not outbound.towards_manager(guid_of("d"), 3).on_hold
    net.run()
    net.kill("a")
    net.start("a")
    outbound = net.nodes["a"].up.inspect().outbound
    assert [(queue.priority, queue.on_hold) for queue in outbound.named(name)] == [(3, True), (5, True)]
    assert outbound.towards_manager(guid_of("c"), 7).on_hold
    for paused in outbound.named(name):
        outbound.hold(paused, on_hold=False)
    assert not outbound.towards_manager(guid_of("c"), 0).on_hold


def test_a_sequence_is_full_when_a_whole_transaction_might_not_fit_any_more() -> None:
    net = a_pair()
    sequences = net.nodes["a"].up.inspect().sequences
    name = at("c").name
    assert not sequences.is_full(name)
    net.send("a", at("c"), "x", transactional=True)
    sequence = sequences._successions[name].newest
    for next_number, full in (
        (LAST_NUMBER - TRANSACTION_LIMIT, False),
        (LAST_NUMBER - TRANSACTION_LIMIT + 1, True),
    ):
        sequence.cursors.base += sequence.next_number - next_number
        assert sequence.next_number == next_number
        assert sequences.is_full(name) is full


def test_a_sequence_has_one_queue_for_its_final_acks_made_when_it_is_needed_and_kept_over_restarts() -> None:
    net = a_pair()
    net.send("a", at("c"), "x", transactional=True)
    sequence = net.nodes["a"].up.inspect().sequences._successions[at("c").name].newest
    assert sequence.final_queue == 0
    number = net.nodes["a"].up.inspect().sequences.final_queue_of(sequence)
    assert net.nodes["a"].up.inspect().sequences.final_queue_of(sequence) == number
    net.run()
    net.kill("a")
    net.start("a")
    assert net.nodes["a"].up.inspect().sequences._successions[at("c").name].newest.final_queue == number
