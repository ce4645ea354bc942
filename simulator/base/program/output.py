"""The output of our programs, and their exit statuses."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

DONE: Final = 0
FINDING: Final = 1
MISUSE: Final = 2
INTERRUPTED: Final = 130

T = TypeVar("T")


def run_task(task: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a task under trio. If an error is alone in nested exception groups, raise it without the groups."""
    import trio

    try:
        return trio.run(task)
    except BaseExceptionGroup as group:
        raise only_one(group) from None


def end_with_input() -> None:
    """When standard input ends, end this process as SIGTERM does, so that it does not outlive its parent."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1_024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="input", daemon=True).start()


def only_one(error: BaseException) -> BaseException:
    """Unwrap exception groups as long as each has only one member, and return what is inside."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


LOG_OF = ""
"""The name of the node whose log goes to standard error; empty if standard error is for people."""


def complain(text: str) -> None:
    """Write one line to standard error; if standard error is a node's log, write it there as an event."""
    text = " ".join(text.splitlines())
    if LOG_OF:
        from mqproto.simulator.base.log import COMPLAINT, node_log

        node_log(sys.stderr, LOG_OF).error(COMPLAINT, reason=text)
    else:
        print(f"mqproto: {text}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print a value as JSON. On a terminal, it is indented and takes several lines."""
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


class Program(NamedTuple):
    """A program that runs until a signal ends it. A command returns this, so that its settings can also be checked.

    check: raises an error if the program would refuse to start. It changes nothing, even while the program runs.
    run: runs the program.
    """

    check: Callable[[], object]
    run: Callable[[], object]


class Printout(NamedTuple):
    """The output of a command, and its exit status. A command that returns this has the option --json.

    value: the output for programs.
    lines: the output for people, or a function that prints it.
    complaints: lines that are printed at the end, for people and programs alike.
    """

    value: object
    lines: Iterable[str] | Callable[[], object]
    status: int = DONE
    complaints: Iterable[str] = ()

    @classmethod
    def of(cls, report: Any, show: Callable[[Any], None]) -> Printout:
        """Return the printout of a report. Its exit status is FINDING if anything in the report is `broken`."""
        return cls(report.as_json(), partial(show, report), FINDING if report.broken else DONE)

    def show(self, *, as_json: bool) -> int:
        """Print the output, and return the exit status."""
        if as_json:
            print_json(self.value)
        elif callable(self.lines):
            self.lines()
        else:
            for line in self.lines:
                print(line)
        for complaint in self.complaints:
            complain(complaint)
        return self.status
