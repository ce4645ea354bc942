"""Shrinks a case that shows a fault: fewer connections, then fewer steps, then fewer mutations in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

import trio

from mqproto.simulator.fuzz.minimise import minimised
from mqproto.simulator.fuzz.mutations import fields_of
from mqproto.simulator.fuzz.tactics.cases import Act, Case, Step

TRIES: Final = 400
SHOWN_EDITS: Final = 4
SHOWN_BYTES: Final = 16
Still = Callable[[Case], Awaitable[bool]]
Part = TypeVar("Part")


class ReplacedBytes(NamedTuple):
    """Bytes of a packet that a mutation has replaced."""

    start: int
    stop: int
    new: bytes


async def smaller(case: Case, still: Still, seconds: float) -> Case:
    """Return the smallest case found in `seconds` that still shows the same fault.

    Args:
        still: sends a case and returns whether the fault shows, which is true for the original case.
    """
    ends_at = trio.current_time() + seconds

    async def fewest(parts: Sequence[Part], joined: Callable[[Sequence[Part]], Case]) -> Case:
        async def shows(some: Sequence[Part]) -> bool:
            return trio.current_time() < ends_at and await still(joined(some))

        return joined(await minimised(parts, shows, TRIES))

    def with_connections(some: Sequence[int]) -> Case:
        kept = set(some)
        others = set(case.connections) - kept
        return case.with_steps(step for step in case.steps if step.connection not in others)

    def with_groups(some: Sequence[tuple[Step, ...]]) -> Case:
        return case.with_steps(step for group in some for step in group)

    if len(case.connections) > 1:
        case = await fewest(sorted(case.connections), with_connections)
    case = await fewest(list(groups(case)), with_groups)
    for index, step in enumerate(case.steps):
        if step.was:
            with_edits = partial(_with_edits, case, index)
            case = await fewest(edits(step.was, step.data), with_edits)
    # With less wrong in one step, another may no longer be needed.
    return await fewest(list(groups(case)), with_groups)


def _with_edits(case: Case, index: int, some: Sequence[ReplacedBytes]) -> Case:
    step = case.steps[index]
    return case.with_steps(
        replace(each, data=edited(step.was, some)) if each is step else each for each in case.steps
    )


def calm(case: Case) -> Case:
    """Return the case with a wait for the peer's answer after each packet.

    Such a case does not depend on how TCP cuts the stream, or on which side is faster, so it can be repeated.
    """
    steps: list[Step] = []
    for step in case.steps:
        if step.act is Act.SEND:
            steps += [step, Step(Act.AWAIT, step.connection)]
        elif step.act is not Act.AWAIT:
            steps.append(step)
    return case.with_steps(steps)


def groups(case: Case) -> Iterator[tuple[Step, ...]]:
    """Yield each step together with the AWAIT steps that follow it."""
    group: list[Step] = []
    for step in case.steps:
        if group and step.act is not Act.AWAIT:
            yield tuple(group)
            group = []
        group.append(step)
    if group:
        yield tuple(group)


def edits(was: bytes, data: bytes) -> list[ReplacedBytes]:
    """Return the edits that were made to a packet, one for each stretch of bytes that differs."""
    if len(was) == len(data):
        changed = [at for at, (old, new) in enumerate(zip(was, data, strict=True)) if old != new]
        runs = [
            [at for _, at in run] for _, run in groupby(enumerate(changed), lambda pair: pair[1] - pair[0])
        ]
        return [ReplacedBytes(run[0], run[-1] + 1, data[run[0] : run[-1] + 1]) for run in runs]
    matcher = SequenceMatcher(None, was, data, autojunk=False)
    return [
        ReplacedBytes(start, stop, data[low:high])
        for tag, start, stop, low, high in matcher.get_opcodes()
        if tag != "equal"
    ]


def edited(was: bytes, some: Sequence[ReplacedBytes]) -> bytes:
    """Return a packet in which only some of its edits are made."""
    for edit in sorted(some, reverse=True):
        was = was[: edit.start] + edit.new + was[edit.stop :]
    return was


def changed_fields(step: Step) -> tuple[str, ...]:
    """Return the names of the fields of the original packet that a mutation has changed, each once, in order."""
    return tuple(dict.fromkeys(name for name, _ in _changes(step)))


def described(step: Step) -> str:
    """Return what is still wrong with a step, field by field."""
    if not step.was or step.was == step.data:
        return step.note
    changes = _changes(step)
    pieces = []
    for name, edit in changes[:SHOWN_EDITS]:
        new = edit.new.hex() if len(edit.new) <= SHOWN_BYTES else f"{edit.new[:SHOWN_BYTES].hex()}..."
        pieces.append(f"{new or 'nothing'} at byte {edit.start}, in {name}")
    if len(changes) > SHOWN_EDITS:
        pieces.append(f"and {len(changes) - SHOWN_EDITS} more")
    return f"{step.note.partition(':')[0]}: {'; '.join(pieces)}"


def _changes(step: Step) -> list[tuple[str, ReplacedBytes]]:
    """Return each edit together with the name of the field in which it begins."""
    fields = fields_of(step.was)
    found = []
    for edit in edits(step.was, step.data):
        holds = (field.name for field in fields if field.offset <= edit.start < field.offset + field.size)
        found.append((next(holds, "what follows it"), edit))
    return found
