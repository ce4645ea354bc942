"""The process that attacks: its attackers, one or many at once, run cases of simulator/fuzz/peer.

It reads orders from its standard input, one line of JSON each, and answers each order with a line. All its attackers
together take at most SHARE of a core. They run on the same machine as their victims, so their own cost could be
mistaken for the attack's cost to a node. So they rehearse each attack before it: they make cases at the same share of
the core, but do not send any.

    python -m mqproto.simulator.fuzz.hostile.attackers
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Final

import msgspec
import trio

from mqproto.simulator.fuzz.peer.attack import Attack
from mqproto.simulator.fuzz.peer.conduct import Conduct, Fault, PeerFailure
from mqproto.simulator.fuzz.peer.lines import COUNTS, Place
from mqproto.simulator.fuzz.tactics.cases import Case
from mqproto.simulator.fuzz.tactics.outofturn import STRANGERS, TACTICS
from mqproto.simulator.fuzz.tactics.talk import IDENTITY_COUNT, PeerTarget, Talk, identity_of
from mqproto.wire import Guid, guid_from_text

SHARE: Final = 0.4
"""The share of one core that all attackers together may take."""
BEAT_S: Final = 0.01
HOLD_S: Final = 0.25
"""The number of seconds for which connections stay idle at a step with WATCH."""
PATIENCE_S: Final = 1.0
"""How many seconds an attacker waits for an answer, or for the node to read its data.

After that, it continues or starts again.
"""
FIRST_S: Final = 60.0
"""How many seconds longer an attack may last if its first case is not over in time.

On a busy machine, that case may start late.
"""


class AttackOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An attack on one node, or its rehearsal.

    tactic: a name in TACTICS.
    sources: the addresses of the attackers, one for each; empty for a rehearsal.
    presented: the queue manager whose GUID they present; empty if they use queue managers of their own.
    known: other queue managers that the node knows.
    queues: direct names of the node's queues. The first and the last are open to strangers, and the last is
        transactional.
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
    """What an attack did, and what it cost.

    broken_off: the number of cases that ended early, because there was no connection or the node stopped reading.
    """

    cases: int = 0
    broken_off: int = 0
    connections: int = 0
    answers: int = 0
    closed: int = 0
    sent_bytes: int = 0
    """The number of bytes in all cases that were begun, whether or not the node read them all."""
    cpu_s: float = 0.0


class Hearing(Conduct):
    """Waits for an answer wherever a case waits.

    It does not judge the answers, because a judge could not keep up with a node.
    """

    def __init__(self, server: Guid | None = None) -> None:
        super().__init__(server)
        self._waits = False

    def said(self, data: bytes) -> None:
        """Record that bytes were sent."""
        self._waits = bool(data)

    def heard(self, data: bytes) -> None:
        """Record that bytes were received."""
        self.answer_count += 1
        self._waits = False

    @property
    def owed(self) -> Fault | None:
        """A fault if an answer, of whatever kind, is still due; otherwise None."""
        return Fault(PeerFailure.HANGS, "it has not answered", "") if self._waits else None


class Ration:
    """The processor time that this process may use: SHARE of one core since the ration was made."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._began_cpu_s = time.process_time()

    @property
    def cpu_s(self) -> float:
        """The processor time that has been used so far."""
        return time.process_time() - self._began_cpu_s

    @property
    def is_used_up(self) -> bool:
        """Whether more than SHARE of one core has been used so far."""
        return self.cpu_s > SHARE * (time.monotonic() - self._began_s)

    async def wait(self) -> None:
        """Wait until some processor time is left."""
        await trio.lowlevel.checkpoint()
        while self.is_used_up:  # noqa: ASYNC110 - only time makes more.
            await trio.sleep(BEAT_S)


async def carry_out(order: AttackOrder) -> Spent:
    """Attack or rehearse for the time in the order.

    If no attacker has carried out a case by then, continue until one has, but for at most FIRST_S more seconds.
    """
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
    order: AttackOrder,
    place: Place,
    ration: Ration,
    numbers: count[int],
    turn: trio.Lock,
    one_is_over: trio.Event,
) -> None:
    """Run one attacker, which carries out one case after another.

    Only one attacker makes a case at a time; meanwhile, the others send and receive.
    """
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


def _case(order: AttackOrder, number: int, source: str) -> Case:
    """Make a case.

    Each source has its own queue managers, because a node refuses a queue manager that it saw on another host less than
    an hour ago.
    """
    presented = guid_from_text(order.presented) if order.presented else None
    known = tuple(map(guid_from_text, order.known))
    target = PeerTarget(order.queues, guid_from_text(order.server), presented, int(time.time()), known)
    identity = presented or identity_of(target, order.seed, f"{source}/{number % IDENTITY_COUNT}")
    talk = Talk(target, order.seed, number, identity)
    talk.is_much = order.tactic in STRANGERS
    return talk.case(order.tactic, TACTICS[order.tactic](talk))


async def _hold() -> Fault | None:
    await trio.sleep(HOLD_S)
    return None


async def _rehearse(order: AttackOrder, ration: Ration) -> None:
    for number in count(1):
        _case(order, number, "")
        await ration.wait()


class Attackers:
    """A handle for the process that attacks."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._said = b""

    async def carry_out(self, order: AttackOrder) -> Spent:
        """Send an order, and wait until it has been carried out."""
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
    """Yield a process that attacks; kill it at the end."""
    command = [sys.executable, "-m", "mqproto.simulator.fuzz.hostile.attackers"]
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
        yield Attackers(await nursery.start(run))
        nursery.cancel_scope.cancel()


def main() -> None:
    """Carry out orders from standard input until it ends."""
    for line in sys.stdin.buffer:
        spent = trio.run(carry_out, msgspec.json.decode(line, type=AttackOrder))
        try:
            sys.stdout.buffer.write(msgspec.json.encode(spent) + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            return  # The run was ended.


if __name__ == "__main__":
    main()
