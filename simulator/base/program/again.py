"""SIGHUP: the settings are read again, and the program begins again with them, in the same process.

It ends as with SIGTERM, with all that is under way, and starts as it was started: so there is one way for a setting to
come into force, and none that can be had only half. Settings that cannot be are refused, and nothing ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from mqproto.base.errors import MqprotoError
from mqproto.simulator.base.program.manager import silent_for, tell

ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)
MICROSECOND_NS: Final = 1_000
START_S: Final = 15 * 60
"""How long a new beginning may take, as its first one may (cli/service/unit.py): a node reads its store."""


class Again:
    """Whether this process is to begin again. Until that can be heard SIGHUP waits, also over the new beginning."""

    def __init__(self) -> None:
        self.is_heeded = False
        self._is_asked = False

    def heed(self, check: Callable[[], object], complain: Callable[[str], None]) -> None:
        """Begin again at SIGHUP.

        Args:
            check: raises an MqprotoError if the settings cannot be.
        """

        def heard(_number: int, _frame: FrameType | None) -> None:
            if self._is_asked:
                return  # What changes from now on is read as well.
            try:
                check()
            except MqprotoError as error:
                complain(f"SIGHUP: {error}; nothing has changed")
                return
            self._is_asked = True
            tell(
                "RELOADING=1",
                f"MONOTONIC_USEC={time.monotonic_ns() // MICROSECOND_NS}",
                *silent_for(START_S),
            )
            os.kill(os.getpid(), signal.SIGTERM)

        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        signal.signal(signal.SIGHUP, heard)
        self.is_heeded = True

    def tell_stopping(self) -> None:
        """Tell the service manager that the program ends, unless it begins again: systemd waits for the end of what has
        told it so, and kills it when TimeoutStopSec is over.
        """
        if not self._is_asked:
            tell("STOPPING=1")

    def begin(self) -> None:
        """Begin again, if that was asked for; else return."""
        if self._is_asked:
            sys.stdout.flush()
            sys.stderr.flush()
            # What was opened here is closed by that, but for the standard three.
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


AGAIN: Final = Again()


@contextmanager
def asked_to_end() -> Iterator[AsyncIterator[int]]:
    """SIGTERM and SIGINT, as they come; and SIGHUP is heard meanwhile, if it is heeded at all."""
    import trio  # Commands that have no loop are had without it.

    with trio.open_signal_receiver(*ENDINGS) as signals:
        if AGAIN.is_heeded:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        try:
            yield signals
        finally:
            if AGAIN.is_heeded:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
