"""The process that attacks: cases of simulator/fuzz/peer, one after the other, by one attacker or many at once.

It takes orders on its standard input, a line of JSON for each, and answers each with a line. All its attackers together
take no more of a core than SHARE: they run on the machine of those whom they attack, and what they take is not what
an attack costs a node. Before an attack they rehearse it: they make cases and send none, at the same share.

    python -m mqproto.simulator.fuzz.hostile.attackers
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

import msgspec
import trio

from mqproto.simulator.fuzz.peer.attack import Attack
from mqproto.simulator.fuzz.peer.conduct import Conduct, Fault, Oracle
from mqproto.simulator.fuzz.peer.lines import COUNTS, Place
from mqproto.simulator.fuzz.tactics.cases import Case
from mqproto.simulator.fuzz.tactics.outofturn import STRANGERS, TACTICS
from mqproto.simulator.fuzz.tactics.talk import IDENTITY_COUNT, Talk, Target, identity_of
from mqproto.wire import Guid, guid_from_text

SHARE: Final = 0.4
"""Of one core, for all attackers together."""
BEAT_S: Final = 0.01
HOLD_S: Final = 0.25
"""How long connections stay as they are where a case has a step WATCH."""
PATIENCE_S: Final = 1.0
"""How long an attacker waits for an answer, or to be read, before it goes on or begins anew."""
FIRST_S: Final = 60.0
"""How much longer an attack may last until one case has come to its end: on a busy machine none may have begun."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An attack on one node, or its rehearsal.

    tactic: of TACTICS.
    sources: where the attackers call from, as many as there are attackers; none for a rehearsal.
    presented: the queue manager in whose name they come; empty for queue managers of their own.
    known: other queue managers that the node knows.
    queues: direct names of its queues: the first and the last are open to strangers, and the last takes transactions.
    """

    tactic: str
    seconds: float
    seed: int = 0
    host: str = ""
    port: int = 0
    ping_port: int = 0
    server: str = ""
    sources: tuple[str, ...] = ()
    presented: str = ""
    known: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What an attack was.

    broken_off: cases that ended early, as no connection was had or nothing was read any more.
    """

    cases: int = 0
    broken_off: int = 0
    connections: int = 0
    answers: int = 0
    closed: int = 0
    sent_bytes: int = 0
    """Of all cases that were begun, whether or not all of it was taken."""
    cpu_s: float = 0.0


class Hearing(Conduct):
    """Waits for an answer where a case waits, and judges none: who judged would be no match for a node."""

    def __init__(self, server: Guid | None = None) -> None:
        super().__init__(server)
        self._waits = False

    def said(self, data: bytes) -> None:
        """These bytes were sent."""
        self._waits = bool(data)

    def heard(self, data: bytes) -> None:
        """These bytes came."""
        self.answer_count += 1
        self._waits = False

    @property
    def owed(self) -> Fault | None:
        """An answer, whatever it is."""
        return Fault(Oracle.HANGS, "it has not answered", "") if self._waits else None


class Ration:
    """The processor time that this process may take: SHARE of one core, from its beginning on."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._began_cpu_s = time.process_time()

    @property
    def cpu_s(self) -> float:
        """What was taken so far."""
        return time.process_time() - self._began_cpu_s

    @property
    def is_used_up(self) -> bool:
        """Whether more was taken than there was until now."""
        return self.cpu_s > SHARE * (time.monotonic() - self._began_s)

    async def wait(self) -> None:
        """Return when there is some."""
        await trio.lowlevel.checkpoint()
        while self.is_used_up:  # noqa: ASYNC110 - time alone makes more.
            await trio.sleep(BEAT_S)


async def carry_out(order: Order) -> Spent:
    """Attack, or rehearse, for as long as is ordered, and until an attacker has carried out one case."""
    ration, one_is_over = Ration(), trio.Event()
    counts = {
        **dict.fromkeys(COUNTS, 0),
        "cases": 0,
        "broken off": 0,
        "bytes": 0,
    }
    async with trio.open_nursery() as nursery:
        if not order.sources:
            one_is_over.set()
            nursery.start_soon(_rehearse, order, ration)
        numbers, turn = count(1), trio.Lock()
        for source in order.sources:
            place = Place(
                trio.socket.AF_INET,
                (order.host, order.port),
                order.ping_port,
                PATIENCE_S,
                guid_from_text(order.server),
                source,
                Hearing,
                counts,
            )
            nursery.start_soon(_attack, order, place, ration, numbers, turn, one_is_over)
        await trio.sleep(order.seconds)
        with trio.move_on_after(FIRST_S):
            await one_is_over.wait()
        nursery.cancel_scope.cancel()
    return Spent(
        cases=counts["cases"],
        broken_off=counts["broken off"],
        connections=counts["connections"],
        answers=counts["answers"],
        closed=counts["closed by the peer"],
        sent_bytes=counts["bytes"],
        cpu_s=ration.cpu_s,
    )


async def _attack(
    order: Order, place: Place, ration: Ration, numbers: count[int], turn: trio.Lock, one_is_over: trio.Event
) -> None:
    """One attacker: cases without end. One makes a case at a time, so that the others speak meanwhile."""
    for number in numbers:
        async with turn:
            await ration.wait()
            case = _case(order, number, place.source)
        place.counts["cases"] += 1
        place.counts["bytes"] += sum(len(step.data) for step in case.steps)
        fault = await Attack(place, _hold).carry_out(case)
        one_is_over.set()
        if fault is not None:
            place.counts["broken off"] += 1
            await trio.sleep(BEAT_S)


def _case(order: Order, number: int, source: str) -> Case:
    """Each source has queue managers of its own: one that was at another host within the hour is refused."""
    presented = guid_from_text(order.presented) if order.presented else None
    known = tuple(map(guid_from_text, order.known))
    target = Target(order.queues, guid_from_text(order.server), presented, int(time.time()), known)
    identity = presented or identity_of(target, order.seed, f"{source}/{number % IDENTITY_COUNT}")
    talk = Talk(target, order.seed, number, identity)
    talk.is_much = order.tactic in STRANGERS
    return talk.case(order.tactic, TACTICS[order.tactic](talk))


async def _hold() -> Fault | None:
    await trio.sleep(HOLD_S)
    return None


async def _rehearse(order: Order, ration: Ration) -> None:
    for number in count(1):
        _case(order, number, "")
        await ration.wait()


class Attackers:
    """The process, as those see it who have it attack."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._said = b""

    async def carry_out(self, order: Order) -> Spent:
        """Have them attack; returns when that is over."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.send_all(msgspec.json.encode(order) + b"\n")
        while b"\n" not in self._said:
            chunk = await self._process.stdout.receive_some()
            assert chunk, "the process of the attackers has ended"
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        return msgspec.json.decode(line, type=Spent)


@asynccontextmanager
async def attackers() -> AsyncIterator[Attackers]:
    """A process that attacks, ended at the end."""
    command = [sys.executable, "-m", "mqproto.simulator.fuzz.hostile.attackers"]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Attackers(process)
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()


def main() -> None:
    """Carry out orders until no more come."""
    for line in sys.stdin.buffer:
        spent = trio.run(carry_out, msgspec.json.decode(line, type=Order))
        try:
            sys.stdout.buffer.write(msgspec.json.encode(spent) + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            return  # The run was ended.


if __name__ == "__main__":
    main()
