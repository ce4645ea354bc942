"""Running gateways for tests: in this process, or in a separate one if they are to be killed."""

from __future__ import annotations

import hashlib
import json
import pickle
import signal
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import h11
import httpx
import trio

from mqproto.simulator.base.http.server import Limits
from mqproto.simulator.client import ReceivedMessage, connect
from mqproto.simulator.edges.gateway.run import run_gateway
from mqproto.simulator.edges.options import GatewayOptions
from mqproto.simulator.node.node import RunningNode
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.places import Place
from tests.simulator.forks import Fork, Forks
from tests.simulator.running import RUNNING, Log, running

SERVE = """
import pickle, sys
from functools import partial
from mqproto.simulator.edges.gateway.run import run_gateway
from mqproto.simulator.node.node import run_node, serve
options = pickle.load(sys.stdin.buffer)
front = partial(run_gateway, options)
serve(partial(run_node, options.place.topology, options.node, options.place.directory, front=front), options.node)
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
    log: Log | None = None,
    limits: Limits | None = None,
    verify: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a gateway in this process until the end of the block; yield a client of it.

    It is beside its node, which runs in this process already, or else for as long as the gateway.
    """
    chosen = options_for(topology, directory, **options)
    async with AsyncExitStack() as held:
        node = RUNNING.get((directory, chosen.node))
        if node is None:
            node = await held.enter_async_context(running(topology, chosen.node, directory, log))
        nursery = await held.enter_async_context(trio.open_nursery())
        beside = _Beside(node)
        url: str = await nursery.start(partial(run_gateway, chosen, cast(RunningNode, beside), limits=limits))
        async with producer(int(url.rpartition(":")[2]), verify) as client:
            yield client
        beside.stopping.set()


class _Beside:
    """A running node, whose gateway stops before it does."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self.stopping = trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


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
        self.log = options.place.directory / "gateway.stderr"

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
