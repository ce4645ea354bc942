"""The cost of packets and messages in instructions, which are the same on a busy machine and on an idle one.

Budgets are multiples of what hand-written code takes to parse the packet, to build it, or, for a message that goes
through a chain, to do both. They were set about an eighth above the count at that time; versions of Python differ by
half of that. If a path becomes cheaper, its budget is lowered. The cost of a message must not grow with the number of
waiting messages, of neighbours or of queues.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from mqproto.manager.queuemanager import QueueManager
from mqproto.wire import check_packet, decode_message, encode_packet, shapes
from mqproto.wire.glance import user_flags
from tests import speed
from tests.bench.codec import DESTINATIONS, example
from tests.chains import Chain
from tests.conformance import ROOT
from tests.counting import allocated
from tests.speed import Cost

BUDGETS: Final = {
    "parse": 1.25,
    "build": 1.4,
    "check": 0.7,
    "chain": 2.55,
    "alone": 17.4,
    "backlog": 2.4,
    "unread": 2.85,
}
FEW, MANY = 1_000, 100_000
IMPORT_CALLS: Final = 15_000
"""The number of calls that `import mqproto.wire` may make in addition to construct's.

When this was set, there were 13,695, or 65,127 if the codec had to be generated.
"""
COUNT_CALLS: Final = """
import sys
import construct

def count(frame, event, argument):
    global calls
    calls += event == "call" and "importlib" not in frame.f_code.co_filename

calls = 0
sys.setprofile(count)
import mqproto.wire
sys.setprofile(None)
print(calls)
"""
GROWTH: Final = 1.1
GROWTH_BYTES: Final = 64 * 1_024
PACKET: Final = encode_packet(example())


def within_budget(path: str, cost: Cost) -> None:
    """Check that a path is within its budget."""
    budget = BUDGETS[path]
    over = cost.ratio / budget - 1
    assert over <= 0, (
        f"{path} takes {cost}: {over:.0%} over its budget of {budget}. By function, as `python -m tests.speed {path}` "
        f"shows them:\n{cost.top}"
    )


def does_not_grow(path: str, few: Cost, many: Cost) -> None:
    """Check that a path costs the same with many of something as with few."""
    growth = many.ratio / few.ratio
    more = Cost(many.counts - few.counts, many.per, many.unit)
    assert growth <= GROWTH, (
        f"{path} takes {growth:.2f} times the instructions with many as with few; at most {GROWTH} are allowed. What "
        f"is more, by function (`python -m tests.speed {path}` has all):\n{more.top}"
    )
    held, before = many.peak_bytes, few.peak_bytes
    assert held is not None
    assert before is not None
    assert held - before <= GROWTH_BYTES, (
        f"{path} holds {held:,} bytes at its peak with many, {before:,} with few: something copies what is many; "
        "tracemalloc.take_snapshot() in tests/counting.py says where"
    )


@pytest.fixture(scope="module")
def usual() -> Cost:
    """The cost of a chain with nothing else to do."""
    return speed.chain()


@pytest.mark.parametrize("kind", DESTINATIONS)
@pytest.mark.parametrize("path", ["parse", "build", "check"])
def test_the_generated_codec_does_little_more_than_code_written_by_hand(path: str, kind: str) -> None:
    within_budget(path, getattr(speed, path)(kind))


def test_a_message_through_three_queue_managers_stays_within_its_budget(usual: Cost) -> None:
    within_budget("chain", usual)


def test_a_message_that_comes_alone_stays_within_its_budget() -> None:
    within_budget("alone", speed.alone())


def test_a_message_costs_the_same_whatever_the_sender_has_yet_to_send() -> None:
    few, many = speed.backlog(FEW), speed.backlog(MANY)
    within_budget("backlog", many)
    does_not_grow("backlog", few, many)


def test_a_message_costs_the_same_whatever_waits_for_the_consumer() -> None:
    few, many = speed.unread(FEW), speed.unread(MANY)
    within_budget("unread", many)
    does_not_grow("unread", few, many)


def test_a_message_costs_the_same_with_many_idle_neighbours(usual: Cost) -> None:
    does_not_grow("neighbours", usual, speed.chain(neighbours=50))


def test_a_message_costs_the_same_with_many_queues(usual: Cost) -> None:
    does_not_grow("queues", usual, speed.chain(queues=1_000))


def test_to_import_the_wire_makes_few_calls() -> None:
    command = [sys.executable, "-c", COUNT_CALLS]
    calls = int(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    assert calls <= IMPORT_CALLS, f"{calls:,} calls; python -X importtime -c 'import mqproto.wire' says where"


# The guard itself


def test_the_same_is_counted_every_time(usual: Cost) -> None:
    assert speed.chain().counts == usual.counts


def test_packets_that_are_read_again_and_again_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def thrice(judge: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        return lambda data: [judge(data) for _ in range(3)][-1]

    monkeypatch.setattr(shapes.Shape, "fits", lambda *arguments: False)
    monkeypatch.setattr(shapes, "check_packet", thrice(check_packet))
    monkeypatch.setattr(shapes, "decode_message", thrice(decode_message))
    with pytest.raises(AssertionError, match="chain takes") as caught:
        within_budget("chain", speed.chain())
    told = str(caught.value)
    assert "over its budget of" in told
    assert "`python -m tests.speed chain`" in told
    assert "check_user_message" in told.splitlines()[1]


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (
            lambda waiting: [user_flags(packet) for packet in waiting[:2_000]],
            r"unread takes .* times the instr",
        ),
        (sorted, r"unread holds .* bytes at its peak"),
    ],
    ids=["a look at each", "a copy"],
)
def test_what_is_done_with_all_that_waits_is_seen(
    look: Callable[[list[bytes]], object], words: str, usual: Cost, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = [PACKET] * MANY
    take = QueueManager.take

    def look_and_take(self: QueueManager, *arguments: Any) -> Any:
        found = look(waiting)
        return take(self, *arguments), found

    monkeypatch.setattr(QueueManager, "take", lambda self, *arguments: look_and_take(self, *arguments)[0])
    with pytest.raises(AssertionError, match=words):
        does_not_grow("unread", usual, speed.chain())


def test_what_is_held_at_a_time_is_told_from_what_was_held_before() -> None:
    held = bytes(1_000_000)
    assert 10_000 <= allocated(lambda: bytes(10_000)) < 20_000
    assert len(held) == 1_000_000


def test_a_chain_passes_on_what_it_is_given() -> None:
    system = Chain()
    before = system.delivered
    system.pass_on(128)
    assert system.delivered == before + 128


def test_the_command_shows_where_the_instructions_are() -> None:
    command = [sys.executable, "-m", "tests.speed", "parse"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("parse: ")
    assert "read_user_message" in shown
