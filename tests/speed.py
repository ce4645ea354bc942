"""Code paths whose cost in instructions is guarded; `python -m tests.speed chain` shows where they are spent.

tests/test_speed.py holds the paths to budgets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from mqproto.wire import check_packet, decode_packet, encode_packet
from tests.bench import byhand
from tests.bench.codec import example
from tests.chains import DESTINATION, Chain
from tests.counting import Instructions, allocated, instructions_of, top

MESSAGES: Final = 64


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a path for one packet or message.

    unit: the number of instructions of the code that the path is compared with, counted in the same process, because
        versions of Python differ.
    peak_bytes: the largest number of bytes held at one time, for all messages; None if not measured.
    """

    counts: Instructions
    per: int
    unit: int
    peak_bytes: int | None = None

    @property
    def ratio(self) -> float:
        return self.counts.total() / self.per / self.unit

    def __str__(self) -> str:
        each = self.counts.total() / self.per
        return f"{each:,.0f} instructions, {self.ratio:.2f} times the {self.unit:,} of code written by hand"

    @property
    def top(self) -> str:
        return top(self.counts, self.per)


@cache
def parsing_by_hand(kind: str = "private") -> int:
    """Return the instructions that hand-written code takes to parse the packet."""
    packet = encode_packet(example(kind=kind))
    return instructions_of(lambda: byhand.parse(packet)).total()


@cache
def building_by_hand(kind: str = "private") -> int:
    """Return the instructions that hand-written code takes to build the packet."""
    message = example(kind=kind)
    return instructions_of(lambda: byhand.build(message)).total()


def parse(kind: str = "private") -> Cost:
    """Turn a message with a private or a direct destination into a record."""
    packet = encode_packet(example(kind=kind))
    return Cost(instructions_of(lambda: decode_packet(packet)), 1, parsing_by_hand(kind))


def build(kind: str = "private") -> Cost:
    """Turn a record into bytes."""
    message = example(kind=kind)
    return Cost(instructions_of(lambda: encode_packet(message)), 1, building_by_hand(kind))


def check(kind: str = "private") -> Cost:
    """Check a good message."""
    packet = encode_packet(example(kind=kind))
    return Cost(instructions_of(lambda: check_packet(packet)), 1, parsing_by_hand(kind))


def chain(*, neighbours: int = 0, queues: int = 1) -> Cost:
    """Pass messages over an intermediate to the destination's consumer; they are acknowledged, with a window of 64."""
    system = Chain(neighbours=neighbours, queues=queues)
    return _of_chain(lambda: system.pass_on(MESSAGES))


def alone() -> Cost:
    """Pass messages that arrive one by one, 200 a second."""
    system = Chain()
    return _of_chain(lambda: system.pass_on_alone(MESSAGES))


def backlog(waiting: int) -> Cost:
    """Pass messages from a sender that has many more to send, and that reads them from disk page by page."""
    system = Chain()
    system.part()
    system.enqueue(waiting)
    system.reunite()
    return _of_chain(lambda: system.drain(MESSAGES))


def unread(waiting: int) -> Cost:
    """Pass messages to a queue where many more messages wait for the consumer."""
    system = Chain()
    system.stop_consuming()
    system.enqueue(waiting, DESTINATION)

    def pass_and_consume() -> None:
        system.pass_on(MESSAGES)
        system.consume()
        system.drain(MESSAGES)
        system.stop_consuming()

    return _of_chain(pass_and_consume)


def _of_chain(job: Callable[[], None]) -> Cost:
    counts = instructions_of(job)
    return Cost(counts, MESSAGES, parsing_by_hand() + building_by_hand(), allocated(job))


PATHS: Final[dict[str, Callable[[], Cost]]] = {
    "parse": parse,
    "build": build,
    "check": check,
    "chain": chain,
    "alone": alone,
    "backlog": lambda: backlog(100_000),
    "unread": lambda: unread(100_000),
    "neighbours": lambda: chain(neighbours=50),
    "queues": lambda: chain(queues=1_000),
}


def main() -> None:
    """Show a path's cost, and its functions with the most instructions."""
    parser = argparse.ArgumentParser(prog="python -m tests.speed", description=main.__doc__)
    parser.add_argument("paths", nargs="*", choices=[[], *PATHS], metavar=f"{{{','.join(PATHS)}}}")
    for name in parser.parse_args().paths or PATHS:
        cost = PATHS[name]()
        print(f"{name}: {cost}\n{cost.top}\n")


if __name__ == "__main__":
    main()
