"""Links and connections, between ends that only listen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, strategies as st

from mqproto.simulator.world import Cable
from mqproto.simulator.world.network.events import EventQueue
from mqproto.simulator.world.network.glimpse import Glimpse
from mqproto.simulator.world.network.links import CONNECT_TIMEOUT_MS, End, Wire
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.wire import encode_packet, user_message


class Listener:
    """A machine that records what it hears, and when."""

    life = 0
    has_power = True

    def __init__(self, name: str, events: EventQueue) -> None:
        self.name = name
        self.core: object = self
        self.ends: dict[int, End] = {}
        self.heard: list[tuple[Any, ...]] = []
        self.data = b""
        self.packets: list[bytes] = []
        self._events = events

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        act(*arguments)

    def accepted(self, end: End) -> None:
        self.ends[end.session] = end
        self.heard.append((self._events.now_ms, "accepted"))

    def opened(self, end: End) -> None:
        self.heard.append((self._events.now_ms, "opened"))

    def lost_session(self, session: int, reason: str) -> None:
        self.heard.append((self._events.now_ms, reason))

    def end_lost(self, end: End, reason: str) -> None:
        end.line.forget(end)
        self.heard.append((self._events.now_ms, reason))

    def packets_arrive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        if end.open:
            self.data += data
            self.packets += [glimpse.packet for glimpse in glimpses]
            self.heard.append((self._events.now_ms, len(data)))


class Pair:
    """Two listeners and the link between them; `near` has called."""

    def __init__(self, **fields: Any) -> None:
        self.events = EventQueue()
        self.line = Wire(Cable(one="a", other="b", latency_ms=10, **fields), 0, self.events)
        self.near, self.far = (Listener(name, self.events) for name in "ab")

    def connect(self) -> End:
        near: Any = self.near
        far: Any = self.far
        self.line.connect(near, 1, far)
        self.events.run_until(self.events.now_ms + 1_000)
        return self.near.ends[1]


def some_packets(count: int) -> list[Glimpse]:
    return [
        Glimpse(
            encode_packet(
                user_message(
                    source=guid_of("a"),
                    destination_manager=guid_of("b"),
                    destination=16,
                    message_id=number,
                    sent_time_s=0,
                    body=bytes(number),
                )
            )
        )
        for number in range(1, count + 1)
    ]


def test_a_connection_is_there_after_one_way_for_the_one_and_two_for_the_other() -> None:
    pair = Pair()
    pair.connect()
    assert pair.far.heard == [(10, "accepted")]
    assert pair.near.heard == [(20, "opened")]


@given(
    counts=st.lists(st.integers(1, 4), max_size=6),
    jitter_ms=st.integers(0, 30),
    cut_per_mille=st.sampled_from([0, 500, 1_000]),
)
def test_all_bytes_arrive_in_order_however_they_are_cut_and_delayed(
    counts: list[int], jitter_ms: int, cut_per_mille: int
) -> None:
    pair = Pair(jitter_ms=jitter_ms, cut_per_mille=cut_per_mille)
    end = pair.connect()
    sent = [some_packets(count) for count in counts]
    for glimpses in sent:
        pair.line.send(end, glimpses)
    pair.events.run_until(10_000)
    packets = [glimpse.packet for glimpses in sent for glimpse in glimpses]
    assert pair.far.data == b"".join(packets)
    assert pair.far.packets == packets


def test_what_was_sent_before_an_orderly_close_arrives_and_what_a_reset_overtakes_does_not() -> None:
    pair = Pair()
    end = pair.connect()
    pair.line.send(end, some_packets(1))
    pair.line.close(end)
    pair.events.run_until(2_000)
    assert pair.far.heard[1:] == [(1_010, len(pair.far.data)), (1_010, "closed by peer")]
    assert pair.far.data
    assert not pair.line.connections

    other = Pair()
    end = other.connect()
    other.line.send(end, some_packets(1))
    assert other.line.reset_all() == 1
    other.events.run_until(2_000)
    assert other.far.heard[1:] == [(1_000, "connection reset")]
    assert not other.far.data


def test_what_is_sent_to_an_end_that_is_gone_is_answered_with_a_reset_if_its_system_has_power() -> None:
    for has_power in (True, False):
        pair = Pair()
        end = pair.connect()
        pair.far.has_power = has_power
        pair.line.forget(end.peer)
        pair.line.send(end, some_packets(1))
        pair.events.run_until(5_000)
        assert pair.near.heard[1:] == ([(1_020, "connection reset")] if has_power else [])
        assert not pair.far.data


def test_a_stall_delays_what_one_side_sends() -> None:
    pair = Pair()
    end = pair.connect()
    pair.line.stalled_until_ms["a"] = 3_000
    pair.line.send(end, some_packets(1))
    pair.line.send(end.peer, some_packets(1))
    pair.events.run_until(4_000)
    assert pair.near.heard[-1] == (1_010, len(pair.near.data))
    assert pair.far.heard[-1] == (3_000, len(pair.far.data))


def test_who_refuses_is_heard_and_who_is_silent_is_given_up() -> None:
    pair = Pair()
    near: Any = pair.near
    far: Any = pair.far
    pair.line.refused_until_ms = 100
    pair.line.connect(near, 1, far)
    pair.events.run_until(100)
    assert pair.near.heard == [(20, "connection refused")]

    pair.line.silent_until_ms = 200
    pair.line.connect(near, 2, far)
    pair.events.run_until(100_000)
    assert pair.near.heard[1:] == [(100 + CONNECT_TIMEOUT_MS, "timed out")]

    pair.far.has_power = False
    pair.line.connect(near, 3, far)
    pair.events.run_until(200_000)
    assert pair.near.heard[2:] == [(100_010 + CONNECT_TIMEOUT_MS, "timed out")]
