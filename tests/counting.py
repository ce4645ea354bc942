"""Counts instructions and bytes: these figures are the same on a busy machine and on an idle one.

`counted` makes CPython report each instruction of mqproto that it carries out. The number of instructions depends only
on the version of Python. A long loop inside one instruction, such as a copy, does not show; but it usually allocates
memory, and `allocated` reports that.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import mqproto
from tests.bench import byhand

PACKAGE: Final = str(Path(mqproto.__file__).parent)
OTHERS: Final = (f"{PACKAGE}/simulator/", f"{PACKAGE}/captures/")
BY_HAND: Final = byhand.__file__

Instructions = Counter[CodeType]
"""The number of instructions that each function has carried out."""


def is_ours(code: CodeType) -> bool:
    """Return whether a function's instructions count, as those of the protocol and of the hand-written codec do."""
    file = code.co_filename
    return file.startswith((PACKAGE, BY_HAND)) and not file.startswith(OTHERS)


@contextmanager
def counted() -> Iterator[Instructions]:
    """Count the instructions that are carried out in the block."""
    counts: Instructions = Counter()
    if sys.version_info >= (3, 12):
        with _monitored(counts):
            yield counts
    else:
        with _traced(counts):
            yield counts


if sys.version_info >= (3, 12):  # where sys.settrace misses instructions

    @contextmanager
    def _monitored(counts: Instructions) -> Iterator[None]:
        monitoring = sys.monitoring
        tool, event = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION

        def step(code: CodeType, offset: int) -> object:
            if is_ours(code):
                counts[code] += 1
                return None
            return monitoring.DISABLE

        monitoring.use_tool_id(tool, "tests.counting")
        try:
            monitoring.register_callback(tool, event, step)
            monitoring.restart_events()
            monitoring.set_events(tool, event)
            yield
        finally:
            monitoring.set_events(tool, monitoring.events.NO_EVENTS)
            monitoring.free_tool_id(tool)

else:

    @contextmanager
    def _traced(counts: Instructions) -> Iterator[None]:
        def enter(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
            if not is_ours(frame.f_code):
                return None
            frame.f_trace_lines = False
            frame.f_trace_opcodes = True
            return step

        def step(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            if event == "opcode":
                counts[frame.f_code] += 1
            return step

        before = sys.gettrace()  # a debugger's, or that of coverage
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(before)


def instructions_of(job: Callable[[], object]) -> Instructions:
    """Return how many instructions each function carries out in one call, once everything is imported and cached."""
    job()
    with counted() as counts:
        job()
    return counts


def allocated(job: Callable[[], object]) -> int:
    """Return the maximum number of bytes that a call holds at one time, beyond those held before it."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        job()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def top(counts: Instructions, per: int = 1, limit: int = 20) -> str:
    """Return the functions with the most instructions as text for people, one line each."""
    lines = []
    for code, count in counts.most_common(limit):
        place = code.co_filename.removeprefix(PACKAGE).lstrip("/")
        lines.append(f"{count / per:10,.1f}  {code.co_qualname}  {place}:{code.co_firstlineno}")
    return "\n".join(lines)
