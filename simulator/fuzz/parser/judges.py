"""Judges, which decide whether a parser handled some bytes well.

A judge returns a value that stands for the path that the bytes took through the parser. Any exception that it raises is
a finding. `Foreign` judges any function; codec.py has the judge of our own codec.
"""

from __future__ import annotations

import builtins
import os
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol

from mqproto.base.errors import UsageError
from mqproto.base.foreign import shown
from mqproto.simulator.edges.trigger.named import find, function
from mqproto.simulator.fuzz.parser.bounds import TookTooLong

BURST: Final = 500
"""The number of mutations of one packet that are tried in a row. The packet's possible edits are then found only
once.
"""
DEFAULT_EXPECTED: Final = ("ValueError",)
_OWN_FOLDER: Final = os.path.dirname(__file__) + os.sep


class Judge(Protocol):
    """Decides whether a parser handled some bytes well.

    counts: for each question, the number of packets about which it was asked.
    """

    counts: Counter[str]

    def judge(self, data: bytes) -> Hashable:
        """Return the path that these bytes took through the parser. Any exception is a finding.

        A fuzzer keeps the bytes if the path is new.
        """

    def judge_again(self, data: bytes) -> None:
        """Ask every question about these bytes, in order to repeat a finding or to minimize it."""

    def burst(self, packet: bytes) -> int:
        """Return how many mutations of a packet to judge in a row: fewer than usual if each takes long."""


class Broken(Exception):  # noqa: N818  (what a parser did, not a mistake of its caller)
    """The parser did not raise anything, but its result is wrong all the same.

    Args:
        oracle: the property that should have held.
        detail: what was seen.
        group: a text that distinguishes the faults that one oracle finds in different places.
    """

    def __init__(self, oracle: str, detail: str, group: str = "") -> None:
        super().__init__(detail)
        self.oracle = oracle
        self.group = f"{oracle}: {group}" if group else oracle


class Foreign:
    """Judges any parser, which may return anything, and may raise the expected exceptions.

    Args:
        function: takes the bytes of one packet.
        expected: the exceptions by which it refuses a packet.
    """

    def __init__(
        self, function: Callable[[bytes], object], expected: tuple[type[BaseException], ...]
    ) -> None:
        self.function = function
        self.expected = expected
        self.counts: Counter[str] = Counter()
        self._accepted = self._refused = 0

    def judge(self, data: bytes) -> Hashable:
        self.counts["raises only what is expected"] += 1
        try:
            self.function(data)
        except self.expected as refusal:
            self.counts["of these refused"] += 1
            return place(refusal.__traceback__)
        return None

    def judge_again(self, data: bytes) -> None:
        with suppress(*self.expected):
            self.function(data)

    def burst(self, packet: bytes) -> int:
        return BURST


def place(trace: TracebackType | None) -> Hashable:
    """Return the place where an exception was raised, in a form that is quick to compute."""
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return id(trace.tb_frame.f_code), trace.tb_lasti


def group_of(error: BaseException) -> str:
    """Return what all findings of one fault share: the exception, the line that raised it, and its caller."""
    if isinstance(error, Broken):
        return error.group
    kind = type(error).__name__
    frames = list(traceback.extract_tb(error.__traceback__))
    ours = [index for index, frame in enumerate(frames) if frame.filename.startswith(_OWN_FOLDER)]
    frames = frames[ours[-1] + 1 :] if ours else frames
    if isinstance(error, TookTooLong | RecursionError) or not frames:
        return kind  # It stopped at an arbitrary place, or outside Python code.
    *callers, last = frames
    caller = f", called by {callers[-1].name}" if callers else ""
    return f"{kind} at {os.path.basename(last.filename)}:{last.lineno} in {last.name}{caller}"


def detail_of(error: BaseException) -> str:
    """Return an exception's text on one line."""
    return shown(" ".join(str(error).split()), 300) or "it says nothing"


def find_function(target: str) -> Callable[[bytes], object]:
    """Return the function that `module:function` names. Modules in the current folder are found, too.

    Raises:
        UsageError: there is no such function.
    """
    return function(target, "--target takes module:function, as in my.package.parser:read")


def find_exceptions(names: Sequence[str]) -> tuple[type[BaseException], ...]:
    """Return the exceptions with these names: Python's own, or `module:Exception`.

    Raises:
        UsageError: one of the names is not an exception.
    """
    found = []
    for name in names:
        value = getattr(builtins, name, None)
        if value is None:
            value = find(name, "--expect takes an exception of Python's, or module:Exception")
        if not (isinstance(value, type) and issubclass(value, BaseException)):
            raise UsageError(f"--expect {name} is no exception")
        found.append(value)
    return tuple(found)
