"""One trial: traffic in a separate process, damage, and another process that has to cope with it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.topology import places
from tests.memory import memory
from tests.simulator.hurt import story
from tests.simulator.hurt.disk import DEATH, FLUSHES, TROUBLES, FailingDisk, Trouble
from tests.simulator.hurt.hurts import (
    COPIED,
    COPIED_AND_GONE,
    ELSEWHERE,
    FILE_HURTS,
    Done,
    Hurt,
    Scene,
    nothing,
)
from tests.simulator.hurt.ledger import Account, Ledger, read
from tests.simulator.hurt.named import Known, final_ack_of, named
from tests.simulator.hurt.operator import EMPTIED, Nodes, Operator
from tests.simulator.hurt.processes import NOTHING, Processes, trace_store
from tests.simulator.hurt.system import NAMES, System
from tests.simulator.hurt.verdict import Outcome, judged

KILLS: Final = "killed, and nothing else"
PATIENCE_S: Final = 90
"""A time limit in seconds: a process of a trial that has not ended by then never will."""
CALLS: Final = 1_000
FLUSHES_AMONG_THEM: Final = 150
CALLS_OF_PROCESSES: Final = 50
"""Like CALLS, the largest number of calls of each kind that a node's store usually makes in a trial.

It is smaller than CALLS, because separate node processes send fewer messages.
"""
REAL_EVERY: Final = 10


class Result(NamedTuple):
    """The result of one trial.

    silent: messages that were altered, lost or duplicated without a report, one per line.
    told: messages that were altered, lost or duplicated, and reported.
    said: the output of nodes and commands.
    error: a traceback, if a process ended with one.
    is_real: whether the trial's nodes were separate processes.
    """

    number: int
    hurt: str
    detail: str
    outcome: Outcome
    silent: list[str]
    told: list[str]
    said: list[str]
    error: str
    is_real: bool


class Process(NamedTuple):
    """How a process of a trial has ended."""

    status: int
    error: str


def hurts() -> dict[str, Hurt]:
    """Return all kinds of damage, by name. For damage that the disk itself does, the act does nothing."""
    return {**FILE_HURTS, **{name: Hurt(nothing) for name in TROUBLES}}


def run_trial(
    seed: int, number: int, name: str, disk: FailingDisk | None, *, is_real: bool | None = None
) -> Result:
    """Run one trial in a folder that is removed afterwards.

    Args:
        name: the kind of damage, or KILLS.
        disk: the failing disk of this process, if there is one.
        is_real: whether the trial's nodes are separate processes; drawn at random by default.
    """
    dice = chance(seed, name, str(number))
    with tempfile.TemporaryDirectory(prefix="mqproto-hurt-", dir=memory()) as folder:
        is_drawn = dice.randrange(REAL_EVERY) == 0
        return _run(Path(folder), dice, number, name, disk, is_real=is_drawn if is_real is None else is_real)


def _run(
    home: Path, dice: Random, number: int, name: str, disk: FailingDisk | None, *, is_real: bool
) -> Result:
    folder, earlier, mislaid, lines = (home / each for each in ("stores", "earlier", "mislaid", "ledger"))
    folder.mkdir(mode=0o700)
    kind = hurts().get(name, Hurt(nothing, 1.0))
    seed = dice.randrange(2**32)
    trouble = DEATH if name == KILLS and disk is not None and dice.random() < 0.7 else TROUBLES.get(name)
    plan = story.planned(dice, seed, kind, trouble=trouble, calls=_calls(trouble, is_real=is_real))

    def copy() -> None:
        shutil.copytree(folder, earlier, ignore=_sockets)

    def begin() -> None:
        act = story.before_real if is_real else story.before
        act(folder, Ledger(lines), plan, copy, disk)

    def go_on() -> None:
        ledger = Ledger(lines)
        nodes: Nodes = (
            Processes(folder, ledger, seed) if is_real else System(folder, ledger, plan.shape, hours=1)
        )
        copied = done.node if done and name in (COPIED, COPIED_AND_GONE) else ""
        if copied:
            nodes.elsewhere[copied] = folder / ELSEWHERE
        operator = Operator(NAMES, ledger, dice, mislaid, copied, original_lives=name == COPIED)
        story.after(nodes, ledger, plan, operator)

    first = in_process(begin, home / "error")
    calls, failures = disk.disarm() if disk is not None else (0, 0)
    detail, second, is_done = "before the hurt", Process(0, ""), True
    done: Done | None = None
    if not first.error:
        if not earlier.exists():  # There was no time for a copy, or no need of one.
            shutil.copytree(folder, earlier, ignore=_sockets)
        if is_real:
            _trace(home, lines, earlier if kind.copies else None)
        done = kind.act(Scene(folder, earlier, mislaid, NAMES, dice))
        detail, is_done = (done.detail, True) if done else ("there was nothing to hurt", False)
        if trouble is not None:
            detail = f"the disk of {plan.victim}: {failures} of {calls} calls, from call {plan.passing}"
            is_done = failures > 0 or name == KILLS
        second = in_process(go_on, home / "error")
    account = Account.of(read(lines))
    said = [f"{node}: {what}" for _, node, what in account.said]
    if error := first.error or second.error:
        return Result(number, name, detail, Outcome.BROKE, [], [], said, error, is_real)
    verdict = judged(
        account,
        seed,
        told_of,
        lambda: _waiting(home),
        is_kill=name == KILLS,
        is_done=is_done,
    )
    silent, told = list(map(str, verdict.silent)), list(map(str, verdict.told))
    return Result(number, name, detail, verdict.outcome, silent, told, said, "", is_real)


def _calls(trouble: Trouble | None, *, is_real: bool) -> int:
    if is_real:
        return CALLS_OF_PROCESSES
    return FLUSHES_AMONG_THEM if trouble is not None and trouble.kinds == FLUSHES else CALLS


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (Path(folder, name).is_file() or Path(folder, name).is_dir())]


def _waiting(home: Path) -> set[str]:
    """Return the labels of all messages that are in the stores at the end, except those in journals."""
    ledger = Ledger(home / "waiting")
    for folder in (home / "stores", home / "stores" / ELSEWHERE):
        for name in NAMES:
            # One that nobody can read has nothing that comes any more.
            with suppress(StoreError, sqlite3.Error, UnicodeDecodeError):
                trace_store(ledger, name, places.store_path(folder, name))
    ledger.close()
    traces = Account.of(read(home / "waiting")).traces.values()
    return {label for some in traces for label, trace in some if "journal" not in trace.queue_name}


def _trace(home: Path, lines: Path, earlier: Path | None) -> None:
    """Record where each message is, because nobody sees the commits of nodes in separate processes."""
    looked_at, ledger = home / "looked-at", Ledger(lines)
    seen = dict.fromkeys(NAMES, NOTHING)
    for moment in filter(None, (earlier, home / "stores")):
        shutil.rmtree(looked_at, ignore_errors=True)
        shutil.copytree(moment, looked_at, ignore=_sockets)
        for name in NAMES:
            if (path := places.store_path(looked_at, name)).exists():
                seen[name] = trace_store(ledger, name, path, seen[name])
    ledger.close()


def told_of(account: Account) -> set[str]:
    """Return the labels of all messages that the nodes and their operators have named.

    A message whose FinalAck was lost waits forever: naming the FinalAck names the message.
    """
    labels: set[str] = set()
    for node in NAMES:
        lines = [what for _, where, what in account.said if where == node]
        if lines:
            found = Known.of(account.traces.get(node, ()))
            labels |= named(lines, found)
            if EMPTIED in lines:
                labels |= found.spots.keys() | found.records.keys()
    traces = [traced for some in account.traces.values() for traced in some]
    return labels | {label for label, trace in traces if final_ack_of(trace.message_id) in labels}


def in_process(act: Callable[[], None], errors: Path) -> Process:
    """Do something in a fork of this process, and return how the fork ended.

    A fork that was killed has no error. A traceback is an error, and so is a fork that does not end.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(PATIENCE_S)
            act()
            status = 0
        except BaseException:
            errors.write_text(traceback.format_exc())
        finally:
            os._exit(status)
    _, waited = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(waited)
    if status == -signal.SIGALRM:
        return Process(status, f"it had not ended after {PATIENCE_S} s")
    return Process(status, errors.read_text() if status > 0 else "")
