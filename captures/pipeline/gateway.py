"""The Java of a session as a process: started by pyspark, and ended by us, as it has to end with us."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final

from pyspark import SparkConf

END_TIMEOUT_S: Final = 60
BACKGROUND: Final = 10
"""As `nice` has it."""


class JavaProcess:
    """A Java that does what we say until its standard input ends, as it does when we are gone.

    Args:
        conf: of Spark.
        environ: what its environment has beside ours.
        log: what it and its workers write.

    Raises:
        PySparkRuntimeError: it ended before it listened.
    """

    def __init__(self, conf: SparkConf, environ: Mapping[str, str], log: BinaryIO) -> None:
        from pyspark.java_gateway import launch_gateway

        # A group of its own: Ctrl-C is for us, and the group can be killed while it is still a chain of scripts.
        how = {"stdout": log, "stderr": log, "start_new_session": True}
        with environment(environ):
            self.gateway: Any = launch_gateway(conf, how)  # type: ignore[no-untyped-call]
        self._process: subprocess.Popen[bytes] = self.gateway.proc

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, though we have not ended it."""
        return self._process.poll() is not None

    def close(self, *, wait: bool = True) -> None:
        """Have it end as it likes, and kill it if it does not.

        Args:
            wait: until it has ended. It may have an archive to write, which nobody needs to wait for.
        """
        with suppress(Exception):
            self.gateway.shutdown()
        self._end_input()
        if not wait:
            with suppress(OSError):
                os.setpriority(os.PRIO_PGRP, self._process.pid, BACKGROUND)
            threading.Thread(target=self._process.wait, name="the end of Java", daemon=True).start()
            return
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def strike(self) -> None:
        """End it now, and wait for nothing. Its Python workers end when they find it gone."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End it now, if it has not ended, and wait until it is gone."""
        self.strike()
        self._process.wait()
        self._end_input()

    def _end_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the block lasts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
