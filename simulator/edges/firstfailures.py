"""The terminal output of a gateway or trigger.

It says what the program is waiting for, and reports the first failure.

The log has all failures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from mqproto.simulator.base.program.output import complain

PATIENCE_S: Final = 2.0
"""The number of seconds after which a program that is still waiting says what it is waiting for."""
QUIET_S: Final = 10.0
"""The minimum number of seconds between two lines of one kind, even if they alternate with successes."""

RETRIED: Final = "retried"
GIVEN_UP: Final = "given up"
"""The kind of failure after which a message is not attempted again."""

FURTHER: Final = "until one is processed, the log alone has more"


class FirstFailures:
    """Reports the first failure of each kind, and then no more of them until a message has been processed.

    There is one exception: after a message is given up, the next one that is retried is reported.

    Args:
        queue: the queue whose messages are processed.
        say: called with each line.
    """

    def __init__(self, queue: str, say: Callable[[str], None]) -> None:
        self._queue = queue
        self._say = say
        self._awaited = {RETRIED: True, GIVEN_UP: True}
        self._said_s = dict.fromkeys(self._awaited, -QUIET_S)

    def retried(self, message: str, reason: str, next_try_s: float) -> None:
        """Report that a message has failed, and will be attempted again after this many seconds."""
        if self._is_news(RETRIED):
            self._say(
                f"{self._queue}: {message} failed ({reason}) and is tried again in {next_try_s:g} s; {FURTHER}"
            )

    def given_up(self, message: str, reason: str, copy_in: str) -> None:
        """Report that a message will not be attempted again.

        Args:
            copy_in: the queue that has a copy; empty if the message was rejected.
        """
        self._awaited[RETRIED] = True  # The service has answered, or another message is called.
        if self._is_news(GIVEN_UP):
            whose = (
                f"{copy_in} has a copy" if copy_in else "its sender has a dead letter, if it asked for one"
            )
            self._say(f"{self._queue}: {message} is given up ({reason}): {whose}; {FURTHER}")

    def processed(self) -> None:
        """Record that a message was processed."""
        self._awaited = dict.fromkeys(self._awaited, True)

    def _is_news(self, kind: str) -> bool:
        now_s = trio.current_time()
        if not self._awaited[kind] or now_s < self._said_s[kind] + QUIET_S:
            return False
        self._awaited[kind], self._said_s[kind] = False, now_s
        return True


def on_screen(text: str) -> None:
    """Write one line to standard error. Errors are ignored, so that a full disk does not end the program."""
    with suppress(OSError):
        complain(text)
        sys.stderr.flush()


async def say_why_it_waits(ready: trio.Event, start: str, log: Path) -> None:
    """If a gateway or trigger is not ready soon, print what it is waiting for.

    Args:
        start: the command that starts its node.
    """
    await trio.sleep(PATIENCE_S)
    if not ready.is_set():
        complain(f"waits until its node runs ({start}); the log is {log}")
