"""SIGHUP makes the program read its settings again and restart with them, in the same process.

The program ends as it does after SIGTERM, once its work is finished, and starts as it was first started. So all
settings take effect together, and in the same way as at a first start. The new settings are checked first, as far as
that is possible while the program runs. If they are invalid, they are refused, and the program continues.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
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
"""How many seconds a restart may take. A first start has the same limit (cli/service/unit.py).

The limit is that high because a node reads its store before it is ready.
"""


class Again:
    """Remembers whether this process has to restart.

    SIGHUP is blocked until it can be handled, even during the restart.
    """

    def __init__(self) -> None:
        self.is_heeded = False
        self._is_asked = False
        self._checking = threading.Lock()

    def heed(self, check: Callable[[], object], complain: Callable[[str], None]) -> None:
        """Restart when SIGHUP arrives.

        Args:
            check: raises an error if the settings are not valid. It runs in a thread, because it may take a while.
            complain: called with a line that says why nothing has changed.
        """

        def examine() -> None:
            with self._checking:
                if self._is_asked:
                    return  # The restart will read later changes as well.
                try:
                    check()
                except Exception as error:  # Whatever it is, the program goes on.
                    said = str(error) if isinstance(error, MqprotoError | OSError) else repr(error)
                    complain(f"SIGHUP: {said}; nothing has changed")
                    return
                self._is_asked = True
            tell(
                "RELOADING=1",
                f"MONOTONIC_USEC={time.monotonic_ns() // MICROSECOND_NS}",
                *silent_for(START_S),
            )
            os.kill(os.getpid(), signal.SIGTERM)

        def heard(_number: int, _frame: FrameType | None) -> None:
            threading.Thread(target=examine, name="settings", daemon=True).start()

        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        signal.signal(signal.SIGHUP, heard)
        self.is_heeded = True

    def tell_stopping(self) -> None:
        """Tell the service manager that the program is stopping, unless it restarts.

        systemd waits for a stopping program to end, and kills it after TimeoutStopSec.
        """
        if not self._is_asked:
            tell("STOPPING=1")

    def begin(self) -> None:
        """Restart if SIGHUP has asked for that; otherwise return."""
        if self._is_asked:
            sys.stdout.flush()
            sys.stderr.flush()
            # This closes all files that were opened here, except the standard three.
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


AGAIN: Final = Again()


@contextmanager
def asked_to_end() -> Iterator[AsyncIterator[int]]:
    """Yield SIGTERM and SIGINT as they arrive. Meanwhile, SIGHUP is unblocked if the program handles it."""
    import trio  # Commands without a loop do without it.

    with trio.open_signal_receiver(*ENDINGS) as signals:
        if AGAIN.is_heeded:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        try:
            yield signals
        finally:
            if AGAIN.is_heeded:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
