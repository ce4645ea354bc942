"""`mqproto trigger` as a process: its options, and the state that it leaves when it is killed.

"Reliable messaging" means the document "Transactions in OSB. Reliable Messaging". "Duplicate detection" means the
document "Summary of Duplicate Detection Process for JMS Triggers".
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from mqproto.messages.drafts import Draft
from mqproto.simulator.cli.cli import FINDING, MISUSE, run_command
from mqproto.simulator.client import Client
from mqproto.simulator.client.envelope import FailureNote
from mqproto.simulator.edges.trigger import standing
from mqproto.simulator.topology import Topology, parse
from mqproto.simulator.topology.places import Place
from tests.conformance import ROOT
from tests.simulator.consumers import DROP, OK, HttpConsumer, Reply, Seen, business_error, listening
from tests.simulator.edges.trigger.test_trigger import TOPOLOGY, send, taken_from
from tests.simulator.forks import Fork, Forks
from tests.simulator.running import running_with_client, until
from tests.simulator.typed import MAIN
from tests.test_readme import blocks_of, console_blocks, shows

TRIGGERS: Final = Forks("mqproto.simulator.cli.cli", "mqproto.simulator.edges.trigger.run")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "desk.toml"
    file.write_text(TOPOLOGY)
    return file


@pytest.fixture
async def desk(file: Path, tmp_path: Path) -> AsyncIterator[Client]:
    topology: Topology = parse(TOPOLOGY, str(file)).with_free_ports()
    async with running_with_client(topology, "desk", tmp_path) as client:
        yield client


@asynccontextmanager
async def running_trigger(
    file: Path, *options: str, queue: str = "orders", name: str = "trigger"
) -> AsyncIterator[Fork]:
    """Run a trigger, and yield it once it is ready; its standard error output goes to `NAME.screen` next to the
    file.
    """
    place = ("--directory", str(file.parent), "--name", name)
    with (file.parent / f"{name}.screen").open("ab") as screen:
        process = await TRIGGERS.start(
            MAIN, "trigger", queue, "--topology", str(file), *place, *options, stderr=screen.fileno()
        )
    try:
        said = b""
        while not said.endswith(b"\n"):
            chunk = await process.stdout.receive_some()
            assert chunk, "it ended before it was ready"
            said += chunk
        assert said == f"ready {name}\n".encode()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        await process.stdout.aclose()


async def ended(process: Fork, number: signal.Signals) -> int:
    """Send a signal to a process; return its exit status."""
    process.send_signal(number)
    return await process.wait()


async def test_a_trigger_that_is_killed_during_the_call_leaves_the_message_in_doubt_and_goes_on(
    desk: Client, file: Path
) -> None:
    """Duplicate detection, step 2: processing started but did not complete. Nothing is lost or processed twice."""
    consumer = HttpConsumer()
    asked, processed = trio.Event(), trio.Event()

    async def never_the_first(seen: Seen) -> Reply:
        if seen.body == b"one":
            asked.set()
            await trio.sleep_forever()
        processed.set()
        return OK

    consumer.answering = never_the_first
    async with listening(consumer):
        options = ("--url", consumer.url, "--error-queue", r"desk\errors")
        async with running_trigger(file, *options) as trigger:
            await send(desk, b"one", b"two")
            await asked.wait()
            assert await ended(trigger, signal.SIGKILL) == -signal.SIGKILL
        async with running_trigger(file, *options) as trigger:
            await processed.wait()
            assert await ended(trigger, signal.SIGTERM) == 0
    assert consumer.bodies == [b"one", b"two"]
    [copy] = await taken_from(desk, "errors")
    assert copy.body == b"one"
    assert await taken_from(desk, "orders") == []


async def test_secrets_are_for_the_consumer_and_not_for_a_resolver_somewhere_else(
    desk: Client, file: Path, tmp_path: Path
) -> None:
    headers, secrets = tmp_path / "headers.toml", tmp_path / "secrets"
    for path, text in ((headers, 'Authorization = "Bearer 3f9c"\n'), (secrets, f"whsec_{'A' * 32}\n")):
        path.touch(0o600)
        path.write_text(text)
    consumer, resolver = HttpConsumer(), HttpConsumer(Reply(200, b'{"status": "NEW"}'))
    called = [trio.Event(), trio.Event()]

    async def never_at_first(seen: Seen) -> Reply:
        first, second = called
        if not first.is_set():
            first.set()
            await trio.sleep_forever()
        second.set()
        return OK

    consumer.answering = never_at_first
    async with listening(consumer), listening(resolver):
        options = ("--url", consumer.url, "--resolver", resolver.url, "--headers-file", str(headers))
        for number, end in ((0, signal.SIGKILL), (1, signal.SIGTERM)):
            async with running_trigger(file, *options, "--signing-secrets", str(secrets)) as trigger:
                if number == 0:
                    await send(desk, b"one")
                await called[number].wait()
                await ended(trigger, end)
    secret = {"authorization", "webhook-id", "webhook-timestamp", "webhook-signature"}
    assert [seen.headers.keys() & secret for seen in consumer.seen] == [secret, secret]
    assert [seen.headers.keys() & secret for seen in resolver.seen] == [set()]


async def test_queues_that_were_made_while_the_node_ran_are_as_good_as_those_of_the_file(
    desk: Client, file: Path
) -> None:
    consumer = HttpConsumer()

    async def refuse(_: Seen) -> Reply:
        return business_error("no such order")

    consumer.answering = refuse
    await desk.make("bills", transactional=True)
    await desk.make("refused", transactional=True)
    async with listening(consumer):
        options = ("--url", consumer.url, "--error-queue", r"desk\private$\refused")
        async with running_trigger(file, *options, queue="bills") as trigger:
            await desk.send("bills", b"one", transactional=True)
            [copy] = await desk.receive("refused", timeout_s=60)
            assert await ended(trigger, signal.SIGTERM) == 0
    assert (copy.body, consumer.bodies) == (b"one", [b"one"])


async def test_each_triggered_queue_has_an_error_queue_without_being_asked_for_one(
    desk: Client, file: Path
) -> None:
    """The queue exists before the first message is looked at, and the next trigger uses it again."""
    consumer = HttpConsumer()

    async def refuse(_: Seen) -> Reply:
        return business_error("no-such-order", "it is unknown")

    consumer.answering = refuse
    async with listening(consumer):
        for body in (b"one", b"two"):
            async with running_trigger(file, "--url", consumer.url) as trigger:
                await send(desk, body)
                [copy] = await desk.receive("orders-errors", timeout_s=60)
                assert await ended(trigger, signal.SIGTERM) == 0
            note = FailureNote.of(copy.extension)
            assert note is not None
            assert (copy.body, note.failure, note.reason) == (
                body,
                "business error",
                "no-such-order: it is unknown",
            )


async def test_without_one_the_sender_has_a_dead_letter(desk: Client, file: Path) -> None:
    async def refuse(_: Seen) -> Reply:
        return business_error("no such order")

    consumer = HttpConsumer()
    consumer.answering = refuse
    async with (
        listening(consumer),
        running_trigger(file, "--url", consumer.url, "--error-queue", "none") as trigger,
    ):
        await desk.send("orders", b"one", transactional=True, journal_negative=True)
        [letter] = await desk.receive("deadxact", timeout_s=60)
        assert await ended(trigger, signal.SIGTERM) == 0
    assert letter.message_class == "NACK_RECEIVE_REJECTED"
    assert "orders-errors" not in {queue.name for queue in await desk.declared()}


async def test_an_outage_is_told_by_explain_and_audit_and_outlives_the_trigger(
    desk: Client, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trigger that is killed and started again continues the pause, and calls no consumer before the pause ends."""
    consumer = HttpConsumer(otherwise=Reply(503))
    options = ("--breaker", "1", "--interval", "1000", "--max-delay", "1000")
    place = ("--topology", str(file), "--directory", str(file.parent))
    told: list[str] = []

    async def ask(*command: str) -> str:
        capsys.readouterr()
        assert await trio.to_thread.run_sync(run_command, [*command, *place]) == 0
        return capsys.readouterr().out

    async def is_held() -> bool:
        told[:] = standing.told(standing.standings(Place(parse(TOPOLOGY, str(file)), file.parent)))
        return bool(told)

    def opened() -> list[dict[str, object]]:
        lines = (file.parent / "desk-trigger.log").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == "breaker-open"]

    async def has_opened_again() -> bool:
        return len(opened()) == 2

    words = r"desk\\orders is held for [\d.]+ s: its consumer fails \(HTTP 503\), 1 failure; desk trigger "
    async with listening(consumer):
        async with running_trigger(file, "--url", consumer.url, *options) as trigger:
            await send(desk, b"one", b"two")
            await until(is_held)
            assert re.fullmatch(words + r"tries a message in 1[67] min( \d+ s)?", told[0])
            await ended(trigger, signal.SIGKILL)
        for command in (("explain", "orders"), ("audit",)):
            held = re.search(words + "does not run: start it\n", await ask(*command))
            assert held is not None
            assert held.start() == 0 or command == ("audit",), "the line that answers comes first"
        async with running_trigger(file, "--url", consumer.url, *options) as trigger:
            await until(has_opened_again)
            [found] = json.loads(await ask("explain", "orders", "--json"))[0]["triggers"]
            assert await ended(trigger, signal.SIGTERM) == 0
    first, second = opened()
    assert (first["since"], first["reason"]) == (second["since"], second["reason"])
    assert (found["leader"], found["has_ended"]) == ("desk trigger", False)
    assert found["held"]["failures"] == 1
    assert consumer.bodies == [b"one"]


class Unreliable(HttpConsumer):
    """A consumer that processes each message once, by its key, and answers at random; for some messages, it has its
    caller killed.
    """

    def __init__(self, seed: int, kills: set[bytes]) -> None:
        super().__init__()
        self.processed: list[bytes] = []
        self.refused: list[bytes] = []
        self.killed: list[bytes] = []
        self.kill = trio.Event()
        self.last = trio.Event()
        self.answering = self._by_dice
        self._dice = random.Random(seed)
        self._kills = kills
        self._keys: set[str] = set()

    async def _by_dice(self, seen: Seen) -> Reply | None:
        if seen.body == b"last":
            self.last.set()
            return OK
        fault = self._dice.choice(["none", "none", "500", "lost", "lost late", "business", "never"])
        is_known = seen.headers["idempotency-key"] in self._keys
        if seen.body in self._kills:
            self._kills.remove(seen.body)
            if fault in ("none", "lost late"):
                self._process(seen)
            self.killed.append(seen.body)
            self.kill.set()
            await trio.sleep_forever()
        if fault == "business" and not is_known:
            self.refused.append(seen.body)
            return business_error("refused")
        if fault in ("none", "lost late", "never"):
            self._process(seen)
        if fault == "never":
            await trio.sleep_forever()
        return {"500": Reply(500), "lost": DROP, "lost late": DROP}.get(fault, OK)

    def _process(self, seen: Seen) -> None:
        key = seen.headers["idempotency-key"]
        if key not in self._keys:
            self._keys.add(key)
            self.processed.append(seen.body)


async def test_whatever_fails_each_message_is_processed_once_and_in_order_or_in_an_error_queue(
    desk: Client, file: Path
) -> None:
    """Reliable messaging, OSB Rules and Message Consumer Rules; duplicate detection, step 2: all of it at once."""
    bodies = [b"%d" % number for number in range(30)]
    consumer = Unreliable(seed=7, kills={b"5", b"20"})
    queues = ("--error-queue", r"desk\errors", "--in-doubt-queue", r"desk\doubts")
    times = ("--timeout", "0.2", "--interval", "0.01", "--max-delay", "0.02", "--attempts", "1000")
    async with listening(consumer):
        await send(desk, *bodies, b"last")
        for _ in range(2):
            async with running_trigger(file, "--url", consumer.url, *queues, *times):
                await consumer.kill.wait()
                consumer.kill = trio.Event()
        async with running_trigger(file, "--url", consumer.url, *queues, *times) as trigger:
            await consumer.last.wait()
            assert await ended(trigger, signal.SIGTERM) == 0
    doubts = [copy.body for copy in await taken_from(desk, "doubts")]
    errors = [copy.body for copy in await taken_from(desk, "errors")]
    assert await taken_from(desk, "orders") == []
    assert doubts == consumer.killed
    assert errors == consumer.refused
    assert consumer.processed == sorted(consumer.processed, key=int)
    assert {*consumer.processed, *errors, *doubts} == {*bodies}
    assert not {*consumer.processed} & {*errors}


async def test_a_trigger_that_is_stopped_during_the_call_lets_it_end(desk: Client, file: Path) -> None:
    """Reliable messaging, OSB Rules: the same holds after an orderly end."""
    consumer = HttpConsumer()
    asked, may_answer = trio.Event(), trio.Event()

    async def slow(seen: Seen) -> Reply:
        asked.set()
        await may_answer.wait()
        return OK

    consumer.answering = slow
    async with listening(consumer), running_trigger(file, "--url", consumer.url, "--json") as trigger:
        await send(desk, b"one", b"two")
        await asked.wait()
        trigger.send_signal(signal.SIGTERM)
        may_answer.set()
        assert await trigger.wait() == 0
    left = [message.body.decode() for message in await taken_from(desk, "orders")]
    assert [json.loads(body)["body"] for body in consumer.bodies] + left == ["one", "two"]


async def test_what_the_readme_shows_of_a_trigger_is_what_it_logs(tmp_path: Path) -> None:
    [[shown]] = console_blocks("http-out")
    [log] = [
        block.text
        for block in blocks_of("http-out", "text")
        if block.text.startswith('{"node": "destination trigger"')
    ]
    file = tmp_path / "shop.toml"
    file.write_text(TOPOLOGY.replace("desk", "destination"))
    topology = parse(file.read_text(), str(file)).with_free_ports()
    refused = business_error("unknown-account", "there is no 17")
    consumer = HttpConsumer(Reply(503), OK, refused)
    async with running_with_client(topology, "destination", tmp_path) as client, listening(consumer):
        drafts = [Draft(body=b"one", transactional=True), Draft(body=b"two", transactional=True)]
        options = ("--url", consumer.url, "--error-queue", r"destination\errors")
        async with running_trigger(file, *options) as trigger:
            await client.send_many(r"destination\orders", drafts)
            [copy] = await client.receive("errors")
            assert await ended(trigger, signal.SIGTERM) == 0
    assert copy.body == b"two"
    calls, *failures = (tmp_path / "trigger.screen").read_text().splitlines()
    screen = "\n".join(
        [calls.replace(consumer.url, "http://127.0.0.1:8080/orders"), "ready trigger", *failures]
    )
    printed = (tmp_path / "destination-trigger.log").read_text()
    # MessageIDs begin anywhere, and follow each other.
    begins = [int(re.search(r"\\\\(\d+)", text)[1]) for text in (log, printed)]  # type: ignore[index]

    def moved(text: str) -> str:
        return re.sub(r"(?<=\\)\d+", lambda ordinal: str(int(ordinal[0]) - begins[1] + begins[0]), text)

    assert shows(shown.output or "", moved(screen)), screen
    # The second is attempted while the first leaves its queue.
    by_message = sorted(moved(printed).splitlines(), key=lambda line: json.loads(line).get("message", ""))
    assert shows(log, "\n".join(by_message)), printed


@pytest.mark.long
def test_a_trigger_says_what_it_waits_for_and_ends_when_it_is_told_to(file: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mqproto.simulator.cli.cli",
        "trigger",
        "orders",
        "--topology",
        str(file),
        "--call",
        "json:dumps",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MQPROTO_DIRECTORY": str(file.parent)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stderr is not None
            first, said = process.stderr.readline().decode(), process.stderr.readline().decode()
            assert first == (
                rf"mqproto: desk\orders: each message is given to json:dumps; "
                f"the log is {file.parent / 'desk-trigger.log'}\n"
            )
            # Where the stores are stands in the environment, and need not be typed.
            assert said.startswith("mqproto: waits until its node runs (`mqproto node --name desk`); ")
            assert "desk is not running" in (file.parent / "desk-trigger.log").read_text()
        finally:
            process.terminate()
    assert process.returncode == 0


async def test_a_queue_that_its_node_alone_knows_is_waited_for_until_that_runs(file: Path) -> None:
    """Under a service manager, the trigger and the node may start at the same moment."""
    topology = parse(TOPOLOGY, str(file)).with_free_ports()
    async with running_with_client(topology, "desk", file.parent) as client:
        await client.make("made", transactional=True)
    consumer = HttpConsumer()
    async with listening(consumer):
        place = ("--topology", str(file), "--directory", str(file.parent), "--url", consumer.url)
        screens = {name: file.parent / f"{name}.screen" for name in ("made", "nowhere")}
        triggers = {}
        for name, screen in screens.items():
            with screen.open("wb") as opened:
                triggers[name] = await TRIGGERS.start(
                    MAIN, "trigger", name, "--name", name, *place, stderr=opened.fileno()
                )
        for name, screen in screens.items():
            while not screen.read_bytes():  # noqa: ASYNC110
                await trio.sleep(0.05)
            said = screen.read_text()
            assert f"{name!r}" in said
            assert (
                "; desk does not run, and may have it: waits until it does (`mqproto node --name desk" in said
            )
        async with running_with_client(topology, "desk", file.parent) as client:
            assert await triggers["nowhere"].wait() == MISUSE, "now it is known that there is none"
            assert await triggers["made"].stdout_until(1) == b"ready made\n"
            await client.send("made", b"last", transactional=True)
            while consumer.bodies != [b"last"]:  # noqa: ASYNC110
                await trio.sleep(0.02)
            assert await ended(triggers["made"], signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "say who is to be called"),
        (("--url", "http://127.0.0.1:9", "--call", "json:dumps"), "say who is to be called"),
        (("--url", "orders.example"), "is not a URL of HTTP"),
        (("--call", "json:nothing"), "is not available"),
        (("--call", "json:dumps", "--json"), "call.content"),
        (("--call", "json:dumps", "--forward-header", "X-A"), "--forward-header is for URLs"),
        (("--url", "http://127.0.0.1:9", "--forward-header", "Host"), "--forward-header Host: it is of one"),
        (("--call", "json:dumps", "--signing-secrets", "s"), "--signing-secrets is for URLs"),
        (("--url", "http://127.0.0.1:9", "--signing-secrets", "no"), "no: No such file or directory"),
        (("--call", "json:dumps", "--ca", "ca.pem"), "--ca is for URLs: leave it out"),
        (("--url", "http://127.0.0.1:9", "--ca", "no.pem"), "no.pem: No such file or directory"),
        (("--url", "http://127.0.0.1:9", "--headers-file", "no.toml"), "no.toml: No such file or directory"),
        (("--url", "http://127.0.0.1:9", "--key", "no.pem"), "--certificate and --key belong together"),
        (("--call", "json:dumps", "--at-least-once", "--resolver", "json:dumps"), "leave --history"),
        (("--call", "json:dumps", "--group-by", "label"), "cannot be grouped"),
        (("--call", "json:dumps", "--parallel", "3"), "how they are grouped"),
        (("--call", "json:dumps", "--name", "../trigger"), "--name"),
        (("--call", "json:dumps", "--error-queue", r"desk\plain"), "name a transactional queue"),
        (("--call", "json:dumps", "--error-queue", r"nowhere\errors"), "nowhere"),
        (("--call", "json:dumps", "--history", "mysql://somewhere"), "no document history is kept"),
        (
            ("--call", "json:dumps", "--hook", "http://127.0.0.1:9", "--history", "none"),
            "--hook needs the document history",
        ),
        (("--call", "json:dumps", "--hook", "shop.example"), "is not a URL of HTTP"),
        (("--call", "json:dumps", "--hook-secrets", "s"), "name it with --hook"),
    ],
)
def test_misuse_is_one_line_that_says_what_to_do(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    file.write_text(f"{TOPOLOGY}[node.desk.queue.plain]\n")
    status = run_command(
        ["trigger", "orders", "--topology", str(file), "--directory", str(file.parent), *arguments]
    )
    printed = capsys.readouterr()
    assert status == MISUSE
    assert says in printed.err
    assert printed.err.count("\n") == 1


def test_a_history_that_cannot_be_had_is_said_in_one_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = file.parent / "no-such-folder" / "history.sqlite"
    arguments = ["--directory", str(file.parent), "--call", "json:dumps", "--history", f"sqlite:///{place}"]
    assert run_command(["trigger", "orders", "--topology", str(file), *arguments]) == FINDING
    assert capsys.readouterr().err.count("\n") == 1
