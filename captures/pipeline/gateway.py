"""The Java of a session as a process: started, reached, and ended by us.

pyspark would start it as well. It is done here because it has to end with us, whatever happens: on Ctrl-C while Spark
starts, pyspark leaves it running; and later, from inside a call, it may no longer be asked to stop.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, Protocol

START_TIMEOUT_S: Final = 300
END_TIMEOUT_S: Final = 120
"""An archive of classes is written at the end; that may take a busy machine half a minute."""
POLL_S: Final = 0.05
ADDRESS: Final = Struct("!ii")
"""What Java says of where it listens: the port and the size of the secret that follows."""


class GatewayError(Exception):
    """The Java did not get as far as to listen; the text says how it ended."""


class Gateway(Protocol):
    """Of py4j's gateway, what is used here."""

    def shutdown(self) -> None: ...


class JavaProcess:
    """spark-submit, which becomes a Java that does what we say until its standard input ends.

    Args:
        arguments: for spark-submit.
        environ: its environment.
        log: what it and its workers write.

    Raises:
        GatewayError: it ended before it listened.
    """

    def __init__(
        self, spark_home: Path, arguments: Sequence[str], environ: Mapping[str, str], log: BinaryIO
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            address = Path(folder) / "address"
            # A group of its own: Ctrl-C is for us, and the group can be killed while it is still a chain of scripts.
            self._process = subprocess.Popen(
                [spark_home / "bin" / "spark-submit", *arguments, "pyspark-shell"],
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
    def pid(self) -> int:
        """Its process, which leads a group of its own."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, though we have not ended it."""
        return self._process.poll() is not None

    def close(self) -> bool:
        """Have it end as it likes; False if it did not, or not well, and had to be killed."""
        with suppress(Exception):
            self.gateway.shutdown()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            return self._process.wait(END_TIMEOUT_S) == 0
        except BaseException as error:
            self.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                return False
            raise

    def strike(self) -> None:
        """End it now, and wait for nothing. Its Python workers end when they find it gone."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End it now, if it has not ended, and wait until it is gone."""
        self.strike()
        self._process.wait()
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
