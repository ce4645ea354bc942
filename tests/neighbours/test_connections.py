"""The connection to other nodes: whose turn it is to send, and what is read from the store for that."""

from __future__ import annotations

from itertools import count, islice
from typing import Any, Final

from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.neighbours.connections import Neighbour
from mqproto.routing import NextHop
from mqproto.transfer.outgoing import ORDER_SUFFIX, OutgoingQueue
from mqproto.turn.effects import ReadPage
from mqproto.turn.pending import PendingWrites
from tests.pair import guid_of
from tests.windows import a_packet

NOW: Final = Moment(0, 0)
RESIDENT: Final = 4


class Way:
    """A neighbour and the queues of messages for it; messages are sent one at a time."""

    def __init__(self) -> None:
        self.writes = PendingWrites(Timers())
        self.neighbour = Neighbour((NextHop(guid_of("b"), "10.0.0.2"),))
        self.queues: dict[tuple[str, int], OutgoingQueue] = {}
        self.disk: dict[int, list[bytes]] = {}
        self._bodies = count()

    def queue(self, name: str, priority: int = 3) -> OutgoingQueue:
        """Return the queue for a destination; the first call makes it."""
        if (name, priority) not in self.queues:
            queue = OutgoingQueue(
                len(self.queues), name, Settings(resident_messages=RESIDENT), priority=priority
            )
            self.queues[name, priority] = queue
            self.disk[queue.queue] = []
            self.neighbour.add(queue)
        return self.queues[name, priority]

    def put(self, name: str, priority: int = 3, messages: int = 1) -> None:
        """Add messages to a queue."""
        queue = self.queue(name, priority)
        for _ in range(messages):
            packet = a_packet(next(self._bodies))
            self.disk[queue.queue].append(packet)
            queue.join(queue.rows([packet], [1], recoverable=True), self.writes)
            self.neighbour.wake(queue)

    def send(self) -> str | None:
        """Let the queue whose turn it is send one message; return its name, or None if no queue can send."""
        queue = self.neighbour.next_queue()
        if queue is None:
            return None
        ([entry], _) = queue.take(1, 2**20, NOW, self.writes)
        assert entry.packet == self.disk[queue.queue][entry.position - 1], "in order"
        return queue.name

    def send_all(self) -> list[str]:
        """Send everything that can be sent without reading from the store; return the names of the queues."""
        return list(iter(self.send, None))

    def read(self, pages: list[ReadPage]) -> None:
        """Answer read requests as the store would."""
        for page in pages:
            queue = next(queue for queue in self.queues.values() if queue.queue == page.queue)
            found = islice(enumerate(self.disk[page.queue], 1), page.after, page.after + page.limit_messages)
            queue.loaded(page, [(position, packet, False) for position, packet in found])
            self.neighbour.wake(queue)


def test_destinations_take_turns_one_that_was_idle_behind_the_others() -> None:
    way = Way()
    way.put("b", messages=3)
    way.put("a", messages=2)
    assert way.send() == "b"
    way.put("c", messages=2)
    assert way.send_all() == ["a", "b", "c", "a", "b", "c"]


def test_what_acknowledges_has_the_first_turn() -> None:
    """A full neighbour accepts only acknowledgments, and these make room there."""
    way = Way()
    way.put("a", messages=3)
    way.put("b", messages=3)
    assert way.send() == "a"
    way.put("z" + ORDER_SUFFIX, messages=2)
    assert [way.send() for _ in range(3)] == ["z" + ORDER_SUFFIX, "b", "a"], "and then one turn as all others"


def test_to_one_destination_the_highest_priority_goes_first() -> None:
    way = Way()
    for priority in (0, 7, 3):
        way.put("a", priority)
    sending = [way.neighbour.next_queue() for _ in range(2)]
    assert sending == [way.queue("a", 7)] * 2
    way.send()
    assert way.neighbour.next_queue() is way.queue("a", 3)


def test_a_turn_passes_while_what_comes_next_is_to_be_read() -> None:
    way = Way()
    way.put("a", 7, messages=RESIDENT + 1)
    way.put("a", 0)
    way.put("b", messages=2 * RESIDENT)
    assert way.send_all().count("a") == RESIDENT, "the priority below waits"
    pages = way.neighbour.pages()
    assert [page.queue for page in pages] == [way.queue("a", 7).queue, way.queue("b").queue]
    assert way.neighbour.pages() == [], "once"
    way.read(pages[:1])
    assert way.send_all() == ["a", "a"]


def test_a_paused_queue_has_no_turn_until_it_is_woken() -> None:
    way = Way()
    way.put("a", messages=2)
    way.queue("a").on_hold = True
    assert way.send() is None
    way.queue("a").on_hold = False
    way.neighbour.wake(way.queue("a"))
    assert way.send_all() == ["a", "a"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 7]), st.integers(1, 9)), max_size=12),
    st.data(),
)
def test_all_is_sent_whatever_is_put_sent_and_read_in_between(
    puts: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    way, asked, sent = Way(), list[ReadPage](), 0
    steps: list[Any] = [*puts, *["send"] * 12, *["pages"] * 4, *["read"] * 4]
    for step in data.draw(st.permutations(steps)):
        if isinstance(step, tuple):
            way.put(*step)
        elif step == "send":
            sent += way.send() is not None
        elif step == "pages":
            asked += way.neighbour.pages()
        else:
            way.read(asked)
            asked.clear()
    while True:
        sent += len(way.send_all())
        asked += way.neighbour.pages()
        if not asked:
            break
        way.read(asked)
        asked.clear()
    assert sent == sum(messages for _, _, messages in puts)
