"""The nodes of system.py as `mqproto node` processes, with sockets; operators use the command.

To leave messages waiting, the trial ends the nodes to which they would go.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import trio

from mqproto.base.errors import MqprotoError
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.logfile import written
from mqproto.simulator.client import Client, connect
from mqproto.simulator.rig.supervisor import PROGRAM, last_error
from mqproto.simulator.storage.care import Salvage, salvaged
from mqproto.simulator.storage.care.reading import opened
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.topology import load, places
from mqproto.simulator.topology.views import as_toml, seen_by
from mqproto.turn.effects import POSITION_BITS
from tests.simulator.hurt.ledger import Ledger, Trace, body_of, digest, flow_of
from tests.simulator.hurt.named import label_of
from tests.simulator.hurt.operator import Repaired
from tests.simulator.hurt.system import DESTINATION, NAMES, PLACES, SENDER

TOPOLOGY: Final = """
[node.sender]
[node.intermediate]
[node.destination]
[node.destination.queue.orders]
transactional = true
[node.destination.queue.notes]
journal = true
[node.destination.queue.gone-orders]
transactional = true
[[link]]
between = ["sender", "intermediate"]
[[link]]
between = ["intermediate", "destination"]
[settings]
try_connect_interval_ms = 100
order_ack_timeout_ms = 50
maximum_order_ack_delay_s = 0.3
resend_timeouts_short_s = 1
resend_timeouts_medium_s = 2
resend_timeouts_long_s = 5
resend_timeouts_final_s = 10
"""
GONE: Final = "gone-orders"
"""The name of a queue that the destination itself does not know."""
QUEUES: Final = {"orders": "orders", "notes": "notes", "deadxact": GONE, "deadletter": "orders"}
"""The queue to which a message is sent, keyed by the place where the message ends."""
BUGS: Final = ("Traceback", "a bug in mqproto")
"""Texts that a program prints if it has crashed."""
PATIENCE_S: Final = 10.0
"""How long, in seconds, a client waits for a node that ends meanwhile."""
LOOK_S: Final = 0.05
EMPTY_S: Final = 0.15
"""The seconds of silence after which nothing more will arrive, if no message is held or still to be sent."""
QUIET_S: Final = 3.0
"""The seconds of silence that are needed if something still waits: more than a resend takes."""
LONGEST_S: Final = 20.0

T = TypeVar("T")


class Processes:
    """Three nodes in one folder.

    Args:
        folder: for stores and logs.
    """

    def __init__(self, folder: Path, ledger: Ledger, seed: int) -> None:
        self.folder = folder
        self.ledger = ledger
        self.errors: dict[str, str] = {}
        self.elsewhere: dict[str, Path] = {}
        file = folder / "hurt.toml"
        if not file.exists():
            file.write_text(TOPOLOGY)
            self.topology = load(str(file)).with_free_ports()
            nodes = dict(self.topology.nodes)
            host = nodes[DESTINATION]
            nodes[DESTINATION] = replace(
                host, queues={name: queue for name, queue in host.queues.items() if name != GONE}
            )
            for name in NAMES:
                known = replace(self.topology, nodes=nodes) if name == DESTINATION else self.topology
                written(folder / f"{name}.toml", as_toml(seen_by(known, name, {})))
        else:
            self.topology = load(str(folder / f"{SENDER}.toml"))
        self._seed = seed
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._spawned: dict[str, subprocess.Popen[bytes]] = {}
        self._log_from = dict.fromkeys(NAMES, 0)
        self._output_from = dict.fromkeys(NAMES, 0)

    def path(self, name: str) -> Path:
        """Return the path of a node's store."""
        return places.store_path(self._home(name), name)

    def _home(self, name: str) -> Path:
        return self.elsewhere.get(name, self.folder)

    def is_up(self, name: str) -> bool:
        """Whether a node is running. A node that has ended by itself has printed the reason."""
        process = self._running.get(name)
        if process is None:
            return False
        if process.poll() is None:
            return True
        self._ended(name)
        return False

    def spawn(self, *names: str) -> None:
        """Launch processes, all at once; `open` waits until each has started."""
        for name in names:
            if name in self._running or name in self._spawned:
                continue
            log, output = self._log(name), self._output(name)
            self._log_from[name] = log.stat().st_size if log.exists() else 0
            self._output_from[name] = output.stat().st_size if output.exists() else 0
            topology = str(self.folder / f"{name}.toml")
            command = [sys.executable, "-m", PROGRAM, "node", name, "--topology", topology]
            command += ["--directory", str(self._home(name)), "--log", str(log), "--supervised"]
            with output.open("ab") as errors:
                self._spawned[name] = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )

    def open(self, name: str) -> str | None:
        """Start a node; return the reason why it does not start, or None if it does."""
        self.spawn(name)
        process = self._spawned.pop(name)
        assert process.stdout is not None
        self.errors.pop(name, None)
        while line := process.stdout.readline():
            if line.startswith(b"ready"):
                self._running[name] = process
                for notice in _notices(self._log(name), self._log_from[name]):
                    self.ledger.write("said", name, what=notice)
                return None
        process.wait()
        _closed(process)
        failure = self._failure(name, process)
        if process.returncode != -signal.SIGKILL:
            self.ledger.write("said", name, what=failure)
        return failure

    def _failure(self, name: str, process: subprocess.Popen[bytes]) -> str:
        """Return the last error line of a process that has ended, or its exit status if there is none.

        Raises:
            AssertionError: it has ended with a traceback.
        """
        output, start = self._output(name), self._output_from[name]
        text = output.read_text()[start:]
        if any(sign in text for sign in BUGS):
            raise AssertionError(f"{name} broke off: {text}")
        return last_error(output, start) or f"exit status {process.returncode}"

    def end(self, number: signal.Signals, *names: str) -> None:
        """Send a signal to nodes, and wait until they have ended."""
        for name in names:
            if name in self._running:
                self._running[name].send_signal(number)
        for name in names:
            if (process := self._running.pop(name, None)) is not None:
                process.wait()
                _closed(process)

    def stop(self, *names: str) -> None:
        """Stop nodes in an orderly way; by default, all of them."""
        self.end(signal.SIGTERM, *(names or NAMES))

    def repair(self, name: str) -> Repaired:
        """Run the command `mqproto store repair`."""
        return self._typed("repair", str(self.path(name)))

    def adopt(self, name: str, how: str) -> Repaired:
        """Run the command `mqproto store adopt`."""
        return self._typed("adopt", str(self.path(name)), f"--{how}")

    def _typed(self, *words: str) -> Repaired:
        command = [sys.executable, "-m", PROGRAM, "store", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if any(sign in done.stderr for sign in BUGS):
            raise AssertionError(f"mqproto store {' '.join(words)}: {done.stderr}")
        lines = [line.removeprefix("mqproto: ") for line in done.stderr.splitlines()]
        return Repaired([*done.stdout.splitlines(), *lines], is_done=not lines)

    # Applications

    def produce(self, labels: list[str]) -> None:
        """Let an application at the sender send messages; those for the same destination go in one request."""
        groups: dict[tuple[str, bool], list[str]] = {}
        for label in labels:
            groups.setdefault((flow_of(label).end, flow_of(label).transactional), []).append(label)
        for (end, transactional), group in groups.items():
            queue = f"{DESTINATION}\\{QUEUES[end]}"
            drafts = [
                Draft(
                    body=body_of(self._seed, label),
                    label=label,
                    transactional=transactional,
                    recoverable=True,
                    journal_negative=True,
                    journal_positive="journal" in flow_of(label).copies,
                    final_ack=transactional,
                )
                for label in group
            ]
            for label in group:
                self.ledger.write("sending", SENDER, label)

            async def send(client: Client, queue: str = queue, drafts: list[Draft] = drafts) -> int:
                return len(await client.send_many(queue, drafts))

            if self._asked(SENDER, send):
                for label in group:
                    self.ledger.write("sent", SENDER, label)

    def consume(self, place: str, limit: int) -> int:
        """Let an application take messages in one transaction; return their number."""
        name, queue = PLACES[place]

        async def take(client: Client) -> int:
            async with client.transaction(queue, limit, timeout_s=0) as messages:
                taken = [(message.label, digest(message.body)) for message in messages]
                for label, what in taken:
                    self.ledger.write("taking", place, label, what)
            for label, what in taken:
                self.ledger.write("taken", place, label, what)
            return len(taken)

        return self._asked(name, take) or 0

    def consume_all(self) -> None:
        """Let applications take all available messages, at every place where messages end."""
        for place in PLACES:
            while self.consume(place, 50):
                pass

    def calm(self) -> None:
        """Wait until nothing more arrives."""

        async def calm() -> None:
            before, since_s = "", trio.current_time()
            with trio.move_on_after(LONGEST_S):
                while True:
                    now, is_empty = await self._look()
                    if now != before:
                        before, since_s = now, trio.current_time()
                    elif trio.current_time() - since_s > (EMPTY_S if is_empty else QUIET_S):
                        return
                    await trio.sleep(LOOK_S)

        trio.run(calm)

    async def _look(self) -> tuple[str, bool]:
        """Return a description of all queues, and whether everything is done.

        Everything is done if no node has failed, and no message is held or still to be sent.
        """
        seen, waits = [], False
        for name in NAMES:
            if not self.is_up(name):
                waits = waits or name in self.errors
                continue
            try:
                async with connect(self.topology, name, self._home(name), patience_s=1) as client:
                    status = await client.queues()
            except MqprotoError:
                continue
            counts = [(one.name, one.waiting, one.held) for one in status.local]
            leaving = [(one.name, one.waiting, one.unread) for one in status.outgoing]
            waits = (
                waits or any(one.held for one in status.local) or any(one.waiting for one in status.outgoing)
            )
            seen.append((name, counts, leaving))
        return repr(seen), not waits

    def _asked(self, name: str, act: Callable[[Client], Awaitable[T]]) -> T | None:
        """Return the result of a client's action; None if its node ends meanwhile, or reports that it failed."""
        if not self.is_up(name):
            return None

        async def ask() -> T | None:
            result: T | None = None
            with suppress(MqprotoError):
                async with (
                    connect(self.topology, name, self._home(name), patience_s=PATIENCE_S) as client,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(self._until_it_ends, name, nursery.cancel_scope)
                    with suppress(MqprotoError):
                        result = await act(client)
                    nursery.cancel_scope.cancel()
            return result

        return trio.run(ask)

    async def _until_it_ends(self, name: str, scope: trio.CancelScope) -> None:
        # Nobody tells us of the end of a process.
        while self.is_up(name):  # noqa: ASYNC110
            await trio.sleep(LOOK_S)
        scope.cancel()

    def _ended(self, name: str) -> None:
        process = self._running.pop(name)
        _closed(process)
        self.errors[name] = self._failure(name, process)
        if process.returncode != -signal.SIGKILL:
            self.ledger.write("said", name, what=self.errors[name])

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _output(self, name: str) -> Path:
        """Return the file for a node's standard error output, which is not on a failing disk."""
        return self.folder / f"output-of-{name}"


def _closed(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def _notices(log: Path, start: int) -> Iterator[str]:
    """Yield what a node printed about its store when it started."""
    with log.open("rb") as file:
        file.seek(start)
        for line in file.read().decode("utf-8", "replace").splitlines():
            with suppress(json.JSONDecodeError):
                fields = json.loads(line)
                if fields.get("event") == "store":
                    yield fields["notice"]
                elif fields.get("event") == "in-doubt":
                    yield from Path(fields["file"]).read_text().splitlines()


class Seen(NamedTuple):
    """The content of a store at some moment.

    messages: the key and the MessageID of each of its messages; a deleted message's key may be used again.
    record: the number of its newest record.
    """

    messages: frozenset[tuple[int, int]]
    record: int


NOTHING: Final = Seen(frozenset(), 0)


def trace_store(ledger: Ledger, name: str, path: Path, before: Seen = NOTHING) -> Seen:
    """Record which messages a store has, and in which records of its log.

    The store is undamaged, and its node has ended.

    Args:
        before: the content of the store at an earlier moment; messages that are not in it came later.
    """
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        return _traced(ledger, name, found, before, _seen_without_log(path))


def _seen_without_log(path: Path) -> Seen:
    """Return the content of a store's tables as they are without SQLite's log.

    Without the log, the tables show the store at another moment than with it.
    """
    with suppress(sqlite3.Error), closing(opened(path, with_log=False)) as db:
        [(record,)] = db.execute("SELECT record FROM log").fetchall()
        return Seen(frozenset(db.execute("SELECT key, message_id FROM message")), record - 1)
    return NOTHING


def _traced(ledger: Ledger, name: str, found: Salvage, before: Seen, alone: Seen) -> Seen:
    labels: dict[int, tuple[str, int]] = {}
    messages = set[tuple[int, int]]()
    queues = {number: found.name_of(number) for number in found.queues}
    settled = (found.mark.record if found.mark else 1) - 1

    def write(first: int, last: int, key: int) -> None:
        label, message_id = labels[key]
        queue = key >> POSITION_BITS
        trace = Trace(first, last, queue, queues.get(queue, ""), message_id)
        ledger.write("record", name, label, json.dumps(trace))

    for row in found.stored_messages([]):
        messages.add((row.key, row.message_id))
        if (label := label_of(row.packet)) is not None:
            labels[row.key] = label, row.message_id
            # Any record may have brought it that the tables have, and did not have when it was not there.
            firsts = [
                seen.record + 1 for seen in (before, alone) if (row.key, row.message_id) not in seen.messages
            ]
            write(max(firsts, default=1), settled, row.key)
    for number in sorted(found.records):
        writes = found.records[number]
        queues |= {row.queue: f"{row.kind} {row.name}" for row in writes.queues}
        for row in writes.messages:
            messages.add((row.key, row.message_id))
            if (label := label_of(row.packet)) is not None:
                labels[row.key] = label, row.message_id
                write(number, number, row.key)
        for first, last in writes.removals:
            for key in [key for key in labels if first <= key <= last]:
                write(number, number, key)
    return Seen(frozenset(messages), found.record)
