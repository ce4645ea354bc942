"""The events of one trial before the damage and after it: the same steps for both kinds of nodes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.storage import LIMITS, LogLimits
from tests.simulator.hurt.disk import FailingDisk, Trouble
from tests.simulator.hurt.hurts import Hurt
from tests.simulator.hurt.ledger import FLOWS, Ledger
from tests.simulator.hurt.operator import Nodes, Operator
from tests.simulator.hurt.processes import Processes
from tests.simulator.hurt.system import DESTINATION, INTERMEDIATE, NAMES, SENDER, Shape, System

SMALL: Final = LogLimits(12_000, 2, 60_000, 5, 8_000)
MIDDLING: Final = LogLimits(200_000, 3, 400_000, 16, 64_000)
WHERE: Final = ("destination", "intermediate", "gap", "sender")
"""The places where messages are left waiting."""
FURTHER: Final = 8
"""How many batches are sent after the damage."""
FIRST_FURTHER: Final = 50_000
"""The number of the first message that is sent after the damage."""


class Plan(NamedTuple):
    """The random choices for one trial, made before anything happens.

    kill_after: the number of commits and sends, since the process last started, after which it dies; None for an
        orderly end.
    waits: the places where messages are left waiting.
    copies: whether stores of an earlier moment are needed; node processes are ended so that their stores can be copied.
    copy_stopped: whether nodes are stopped for the copy; if not, they are killed.
    trouble, passing: the failure of `victim`'s disk, and the number of calls that pass before it.
    starts_anew: whether the node is started again in the meantime.
    """

    shape: Shape
    waits: frozenset[str]
    kill_after: int | None
    copies: bool
    copy_stopped: bool
    victim: str
    trouble: Trouble | None = None
    passing: int = 0
    starts_anew: bool = False


def planned(dice: Random, seed: int, kind: Hurt, *, trouble: Trouble | None, calls: int) -> Plan:
    """Draw the plan of a trial.

    Args:
        calls: the largest number of system calls that the victim's store makes.
    """
    killed = dice.random() < kind.kill_share
    waits = frozenset(where for where in WHERE if dice.random() < 0.7)
    shape = Shape(seed, dice.choice((LIMITS, SMALL, MIDDLING)), dice.choice((8, 64, 512)))
    kill_after = dice.choice((dice.randrange(1, 60), 10**9)) if killed else None
    return Plan(
        shape=shape,
        waits=waits,
        kill_after=kill_after if trouble is None else 10**9,
        copies=kind.copies,
        copy_stopped=dice.random() < 0.5,
        victim=dice.choice(NAMES),
        trouble=trouble,
        # Mostly early: stores of few messages make few calls.
        passing=int(calls * dice.random() ** 3),
        starts_anew=dice.random() < 0.5,
    )


class Labels:
    """Labels of messages, in order."""

    def __init__(self, dice: Random, first: int = 0) -> None:
        self._dice = dice
        self._next = first

    def some(self, count: int) -> list[list[str]]:
        """Return `count` batches of labels; each batch may have labels of all flows."""
        batches = []
        for _ in range(count):
            batch = []
            for flow in FLOWS:
                for _ in range(self._dice.randrange(4)):
                    batch.append(f"{flow}-{self._next:05}")
                    self._next += 1
            self._dice.shuffle(batch)
            # One request is transactional as a whole or not at all.
            batches.append([label for label in batch if FLOWS[label.partition("-")[0]].transactional])
            batches.append([label for label in batch if not FLOWS[label.partition("-")[0]].transactional])
        return [batch for batch in batches if batch]


def before(
    folder: Path, ledger: Ledger, plan: Plan, copy: Callable[[], None], disk: FailingDisk | None
) -> None:
    """Run traffic until the process ends, in an orderly way or by a kill. This runs in a separate process.

    Args:
        copy: makes a copy of the stores as they are now.
    """
    dice = chance(plan.shape.seed, "traffic")
    labels = Labels(dice)
    system = System(folder, ledger, plan.shape)
    for name in NAMES:
        if (failure := system.open(name)) is not None:
            raise AssertionError(f"{name} does not start for the first time: {failure}")
    if plan.trouble is not None and disk is not None:
        disk.arm(folder / f"{plan.victim}.", plan.trouble, plan.passing)

    def traffic(count: int) -> None:
        for batch in labels.some(count):
            system.produce(batch)

    def some_are_received() -> None:
        for place in ("orders", "notes", "orders", "notes"):
            system.consume(place, dice.randrange(1, 12))

    traffic(dice.randrange(2, 5))
    some_are_received()
    if plan.copy_stopped:
        system.stop()
        copy()
        _start_all(system)
    else:
        copy()
    system.calm()
    traffic(dice.randrange(2, 5))
    system.calm()
    system.consume_all() if dice.random() < 0.5 else some_are_received()
    if plan.starts_anew:
        _start_all(system)

    strikes = [plan.kill_after if plan.kill_after is not None else 10**9]

    def strike() -> None:
        strikes[0] -= 1
        if strikes[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    system.strike = strike
    if "destination" in plan.waits:
        traffic(dice.randrange(1, 4))
    if "intermediate" in plan.waits or "gap" in plan.waits:
        _cut(system, INTERMEDIATE, DESTINATION)
        traffic(dice.randrange(1, 4))
    if "gap" in plan.waits:
        # What goes round the intermediate comes before what waits there.
        system.stop(SENDER)
        system.route_directly()
        if system.open(SENDER) is None:
            system.pass_ms(300)
            traffic(dice.randrange(1, 3))
            system.pass_ms(300)
    if "sender" in plan.waits:
        _cut(system, SENDER, INTERMEDIATE)
        _cut(system, SENDER, DESTINATION)
        traffic(dice.randrange(1, 4))
    some_are_received()
    if plan.starts_anew:
        _start_all(system)
        traffic(1)
    if plan.kill_after is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    system.stop()


def _cut(system: System, one: str, other: str) -> None:
    system.blocked.add(frozenset((one, other)))
    system.cut(one, other)


def _start_all(system: System) -> None:
    for name in NAMES:
        if not system.is_up(name):
            system.open(name)


def before_real(
    folder: Path, ledger: Ledger, plan: Plan, copy: Callable[[], None], disk: FailingDisk | None
) -> None:
    """Run traffic with node processes until they end. Messages wait for nodes that are down."""
    dice = chance(plan.shape.seed, "traffic")
    labels = Labels(dice)
    nodes = Processes(folder, ledger, plan.shape.seed)
    how = signal.SIGTERM if plan.kill_after is None else signal.SIGKILL

    def start(*names: str) -> None:
        nodes.spawn(*(name for name in names if not nodes.is_up(name)))
        for name in names:
            if not nodes.is_up(name):
                nodes.open(name)

    def traffic(count: int) -> None:
        for batch in labels.some(count):
            nodes.produce(batch)

    start(*NAMES)
    if plan.trouble is not None and disk is not None:
        disk.arm(folder / f"{plan.victim}.", plan.trouble, plan.passing)
    traffic(dice.randrange(1, 4))
    nodes.calm()
    nodes.consume("notes", 5)
    if plan.copies:
        nodes.end(how, *NAMES)
        copy()
        start(*NAMES)
    traffic(dice.randrange(1, 4))
    nodes.calm()
    nodes.consume_all() if dice.random() < 0.5 else nodes.consume("orders", 5)
    if "destination" in plan.waits:
        traffic(1)
        nodes.calm()
    if "intermediate" in plan.waits:
        nodes.end(how, DESTINATION)
        traffic(1)
    if "sender" in plan.waits:
        nodes.end(how, INTERMEDIATE)
        traffic(1)
    if plan.starts_anew:
        start(*NAMES)
        traffic(1)
    nodes.end(how, *NAMES)


def after(nodes: Nodes, ledger: Ledger, plan: Plan, operator: Operator) -> None:
    """Deliver all waiting messages, and then some new ones. This runs in a separate process."""
    labels = Labels(chance(plan.shape.seed, "further"), FIRST_FURTHER)
    ledger.phase = 1
    operator.starts(nodes)
    _finish(nodes, operator)
    ledger.phase = 2
    for _ in range(FURTHER):
        for batch in labels.some(1):
            nodes.produce(batch)
        operator.looks(nodes)
    _finish(nodes, operator)
    nodes.stop()


def _finish(nodes: Nodes, operator: Operator) -> None:
    """Let time pass, and let consumers receive, until nothing more arrives."""
    for _ in range(2):
        nodes.calm()
        operator.looks(nodes)
        nodes.consume_all()
        operator.looks(nodes)
