"""Running gateways for tests: in this process, or in a separate one if they are to be killed."""

from __future__ import annotations

import hashlib
import json
import pickle
import signal
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import h11
import httpx
import trio

from mqproto.simulator.base.http.server import Limits
from mqproto.simulator.base.log import LogLines
from mqproto.simulator.client import ReceivedMessage, connect
from mqproto.simulator.edges.gateway.run import run_gateway
from mqproto.simulator.edges.options import GatewayOptions
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.places import Place
from tests.simulator.forks import Fork, Forks
from tests.simulator.running import Log

SERVE = """
import pickle, sys, trio
from mqproto.simulator.edges.gateway.run import serve
trio.run(serve, pickle.load(sys.stdin.buffer))
"""
GATEWAYS: Final = Forks("mqproto.simulator.edges.gateway.run")
NOBODY: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""The TLS settings for clients of plain HTTP, with no certificates.

Otherwise, httpx would read all authorities' certificates for each client, which takes as long as a short test.
"""


def written_tokens(folder: Path, **tokens: str) -> Path:
    """Write a file of tokens.

    Each argument is named after a token's holder, and its value is the rest of the holder's table. The token is the
    holder's name, repeated 32 times.
    """
    path = folder / "tokens.toml"
    path.touch(0o600)
    path.write_text(
        "\n".join(f'[{name}]\nsha256 = "{hashed(name * 32)}"\n{rest}' for name, rest in tokens.items())
    )
    return path


def hashed(token: str) -> str:
    """Return a token's SHA-256, as it is written in the file."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer(token: str) -> dict[str, str]:
    """Return the header that presents a token."""
    return {"Authorization": f"Bearer {token}"}


def options_for(topology: Topology, directory: Path, **others: Any) -> GatewayOptions:
    """Return the options of a gateway that listens on a free port and hands messages to the destination."""
    return GatewayOptions(
        **{"place": Place(topology, directory), "node": "destination", "listen": "127.0.0.1:0", **others}
    )


@asynccontextmanager
async def gateway(
    topology: Topology,
    directory: Path,
    log: LogLines | None = None,
    limits: Limits | None = None,
    verify: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a gateway in this process until the end of the block; yield a client of it."""
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[Any]) -> None:
            chosen = options_for(topology, directory, **options)
            await run_gateway(chosen, log=log or Log(), limits=limits, task_status=task_status)

        server, port = await nursery.start(run)
        async with producer(port, verify) as client:
            yield client
        server.stop()


def producer(port: int, verify: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """Return a client of a gateway, patient enough for a busy machine; it uses HTTPS if `verify` is given."""
    url = f"{'https' if verify else 'http'}://127.0.0.1:{port}"
    return httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=verify or NOBODY)


class Told(NamedTuple):
    """The answer of a gateway."""

    status: int
    body: dict[str, Any]


async def ask(port: int, path: str, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> Told:
    """POST over a separate connection; this is cheap enough to be done thousands of times at once.

    Raises:
        h11.RemoteProtocolError, OSError, trio.BrokenResourceError: there is no answer.
    """
    http = h11.Connection(h11.CLIENT)
    length = ("Content-Length", str(len(body)))
    head = http.send(h11.Request(method="POST", target=path, headers=[("Host", "x"), length, *headers]))
    assert head is not None
    status, found = 0, b""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        # A refusal may come while the body is still sent, and then it may be all that comes.
        with suppress(trio.BrokenResourceError):
            await stream.send_all(head + (http.send(h11.Data(data=body)) or b""))
        http.send(h11.EndOfMessage())
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(65_536))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                found += event.data
            elif isinstance(event, h11.EndOfMessage):
                return Told(status, json.loads(found))


NO_ANSWER: Final = (h11.RemoteProtocolError, OSError, trio.BrokenResourceError)


class GatewayProcess:
    """A gateway in a separate process, ready when `start` returns."""

    def __init__(self, options: GatewayOptions) -> None:
        self.options = options
        self.port = 0
        self.process: Fork | None = None
        self.log = options.place.directory / f"{options.name}.stderr"

    async def start(self) -> None:
        """Start the gateway, and wait until it takes requests."""
        with self.log.open("ab") as log:
            self.process = await GATEWAYS.start(SERVE, stderr=log.fileno())
        await self.process.stdin.send_all(pickle.dumps(self.options))
        await self.process.stdin.aclose()
        said = b""
        while not said.endswith(b"\n"):
            part = await self.process.stdout.receive_some()
            assert part, self.log.read_text()
            said += part
        assert said.startswith((b"ready http://127.0.0.1:", b"ready https://127.0.0.1:"))
        self.port = int(said.rsplit(b":", 1)[1])

    async def wait(self) -> int:
        """Wait until the gateway has ended; return its exit status."""
        assert self.process is not None
        process, self.process = self.process, None
        status = await process.wait()
        await process.stdout.aclose()
        return status

    async def kill(self) -> None:
        """Kill the gateway if it is running, without giving it a chance to print anything."""
        if self.process is not None:
            with trio.CancelScope(shield=True):
                self.process.send_signal(signal.SIGKILL)
                await self.wait()


async def received(topology: Topology, name: str, directory: Path, queue: str) -> list[ReceivedMessage]:
    """Take all messages out of a queue on the node that hosts it."""
    found: list[ReceivedMessage] = []
    async with connect(topology, name, directory) as client:
        while messages := await client.receive(queue, 100, timeout_s=0):
            found += messages
    return found
