"""The Java process of a session: we start it, talk to it and end it.

pyspark could start it as well. We start it because Java must end with our process in any case. On Ctrl-C while Spark
starts, pyspark leaves Java running; during a later call, pyspark no longer answers a request to stop.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, Protocol

START_TIMEOUT_S: Final = 300
END_TIMEOUT_S: Final = 60
BACKGROUND: Final = 10
"""The `nice` value of a Java process that works in the background."""
POLL_S: Final = 0.05
ADDRESS: Final = Struct("!ii")
"""How the Java process says where it listens: the port, and the size of the secret that follows."""


class GatewayError(Exception):
    """The Java process exited before it listened; the text says how it exited."""


class Gateway(Protocol):
    """The part of py4j's gateway that is used here."""

    def shutdown(self) -> None: ...


class JavaProcess:
    """spark-submit, which becomes a Java process that ends when its standard input ends.

    Args:
        command: spark-submit and its arguments, perhaps inside a shell command.
        environ: the environment of the process.
        log: the file for the output of the process and of its workers.

    Raises:
        GatewayError: the process exited before it listened, or did not listen within START_TIMEOUT_S.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: BinaryIO) -> None:
        with tempfile.TemporaryDirectory() as folder:
            address = Path(folder) / "address"
            # Its own group: Ctrl-C is for us, and the group can be killed while it is still a chain of scripts.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)},
                start_new_session=True,
            )
            try:
                self.gateway = self._reach(address)
            except BaseException:
                self.kill()
                raise

    def _reach(self, address: Path) -> Gateway:
        from pyspark.java_gateway import launch_gateway

        deadline = time.monotonic() + START_TIMEOUT_S
        while not address.exists():
            if (status := self._process.poll()) is not None:
                raise GatewayError(f"its Java ended with status {status}")
            if time.monotonic() > deadline:
                raise GatewayError(f"its Java was not ready within {START_TIMEOUT_S} s")
            time.sleep(POLL_S)
        told = address.read_bytes()
        port, length = ADDRESS.unpack_from(told)
        secret = told[ADDRESS.size : ADDRESS.size + length].decode()
        with environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            gateway: Gateway = launch_gateway()  # type: ignore[no-untyped-call]
        return gateway

    @property
    def has_ended(self) -> bool:
        """Whether the Java process has ended on its own."""
        return self._process.poll() is not None

    def close(self, *, wait: bool = True) -> None:
        """Ask Java to end, and kill it if it does not.

        Args:
            wait: whether to wait until it has ended; nobody needs to wait while it writes an archive.
        """
        with suppress(Exception):
            self.gateway.shutdown()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
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
        """Kill Java without waiting; its Python workers end when they find that it is gone."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill Java if it has not ended, and wait until it is gone."""
        self.strike()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the block."""
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
