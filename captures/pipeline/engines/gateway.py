"""The Java process of a session: we start it, and end it.

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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final

END_TIMEOUT_S: Final = 60
POLL_S: Final = 0.05
ADDRESS: Final = Struct("!ii")
"""How the Java process says where it listens: the port, and the size of the secret that follows."""


class GatewayError(Exception):
    """The Java process exited before it listened; the text says how it exited."""


class JavaProcess:
    """spark-submit, which becomes a Java process that ends when its standard input ends.

    Attributes:
        address: the environment variables by which pyspark finds the process.

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
                while not address.exists():
                    if (status := self._process.poll()) is not None:
                        raise GatewayError(f"its Java ended with status {status}")
                    time.sleep(POLL_S)
                told = address.read_bytes()
            except BaseException:
                self.kill()
                raise
        port, length = ADDRESS.unpack_from(told)
        secret = told[ADDRESS.size : ADDRESS.size + length].decode()
        self.address = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}

    @property
    def has_ended(self) -> bool:
        """Whether the Java process has ended on its own."""
        return self._process.poll() is not None

    def close(self, *, wait: bool = True) -> None:
        """Let Java end, and kill it if it does not.

        Args:
            wait: whether to wait until it has ended; nobody needs to wait while it writes an archive.
        """
        self._end_input()
        if not wait:
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
        self._end_input()

    def _end_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
