"""`mqproto validate`, which runs a producer, nodes, a trigger, and a consumer that fails on cue. It counts and checks
each stage.

The "Test Project" of "Transactions in OSB. Reliable Messaging" records how often a message is read from its queue, and
whether it reaches its final destination. Here, processes, disks and HTTP are real; only the consumer is not. Events are
counted from the logs, and calls are counted by the consumer itself. In addition to its expected counts, each scenario
is judged by the oracles of the rig.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import trio

from mqproto.edge.custody import End, end_of
from mqproto.simulator.client.story import Step, logs_in, read_step
from mqproto.simulator.rig.load.posting import Handover, Outgoing, PostingProducer
from mqproto.simulator.rig.load.validator import Cue, Validator, scripted
from mqproto.simulator.rig.observer import excess
from mqproto.simulator.rig.rig import DESTINATION, SENDER, new_folder
from mqproto.simulator.rig.validation.edgerig import GATEWAY, EdgeRig, three_nodes
from mqproto.simulator.rig.validation.ledger import EdgeLedger
from mqproto.simulator.rig.validation.scenario import STAGES, Outcome, ProcessKill, ValidationScenario
from mqproto.simulator.rig.verdict import RunOracle, judged
from mqproto.simulator.topology import DeclaredQueue
from mqproto.simulator.topology.ports import reserved_address

QUEUE, ERRORS, IN_DOUBT = "orders", "errors", "in-doubt"
PLACE: Final = f"{DESTINATION}%5C{QUEUE}"
"""The queue's name in a URL."""
TRIGGER: Final = "trigger"
LIMIT_S: Final = 60.0
"""The time, in seconds, that a scenario may wait for an event."""
LOOK_S: Final = 0.05
INTERVAL_S: Final = 0.1
"""The pause, in seconds, before each further attempt of the trigger."""
LIARS: Final = frozenset({Cue.FAIL_LATE, Cue.LATE, Cue.DIE})
"""The actions with which a consumer processes a message but does not accept it. The trigger may then deliver the
message again.
"""


class Logs:
    """The steps in the logs of a folder, as far as they have been written."""

    def __init__(self, directory: Path) -> None:
        self.steps: list[Step] = []
        self._directory = directory
        self._read_bytes: Counter[Path] = Counter()
        self.look()
        self.steps.clear()  # What was there before is of other scenarios.

    def look(self) -> None:
        """Read the lines that have been written since the last look."""
        for path in logs_in(self._directory):
            with path.open("rb") as file:
                file.seek(self._read_bytes[path])
                whole, end, _ = file.read().rpartition(b"\n")
            self._read_bytes[path] += len(whole) + len(end)
            self.steps += filter(None, map(read_step, whole.split(b"\n")))

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until `happened` returns true, and keep reading the logs until then."""
        self.look()
        while not happened():
            await trio.sleep(LOOK_S)
            self.look()


class Validation(EdgeRig):
    """Runs scenarios, one after the other, on the same nodes."""

    def __init__(self, folder: Path) -> None:
        queues = {
            name: DeclaredQueue(name=name, identifier=number, transactional=True)
            for name, number in ((ERRORS, 100), (IN_DOUBT, 101))
        }
        super().__init__(three_nodes(queues).with_waypoints(), folder)
        self.before: set[str] = set()
        """The identifiers of all messages of earlier scenarios."""

    async def outcome(self, name: str, scenario: ValidationScenario) -> Outcome:
        """Carry out a scenario, and stop all its programs at the end."""
        async with self.connect(DESTINATION) as client:
            for queue in (QUEUE, ERRORS, IN_DOUBT):
                await client.purge(queue)
        stage = Stage(self, Path(name).stem, scenario)
        trouble = ""
        async with self.edges(stage.consume, stage.commands()):
            with trio.move_on_after(LIMIT_S) as limit:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(stage.strike)
                    await stage.produce()
                    await stage.settled()
                await self.programs.stop(TRIGGER)  # All that it has to say is in its log then.
            if limit.cancelled_caught:
                due = "".join(f"; no {each.when!r} came to kill {each.kill}" for each in stage.strikes[:1])
                trouble = f"not all of it had happened after {LIMIT_S:g} s{due}"
            counts, broken = await stage.judged(self.before)
        self.before |= set(stage.handover.accepted.values())
        outcome = Outcome(name, scenario, counts, trouble, broken)
        return outcome if outcome.holds else outcome._replace(logs=str(self.directory))


class Stage:
    """One scenario, and its results so far."""

    def __init__(self, rig: EdgeRig, name: str, scenario: ValidationScenario) -> None:
        self._rig = rig
        self._scenario = scenario
        self.strikes = list(scenario.strikes)
        """The kills that have not come yet."""
        self._logs = Logs(rig.directory)
        self._consumer = Validator(scripted(scenario.cues, scenario.only))
        self._port, self._address = reserved_address()[1], rig.gateway_url.removeprefix("http://")
        self._messages = [
            Outgoing(key, PLACE, key.encode()) for key in (f"{name}-{n}" for n in range(scenario.messages))
        ]
        self.handover = Handover()

    def commands(self) -> dict[str, list[str]]:
        """Return the command that starts the trigger."""
        scenario, rig = self._scenario, self._rig
        copies = (
            "--error-queue",
            f"{DESTINATION}\\{ERRORS}",
            "--in-doubt-queue",
            f"{DESTINATION}\\{IN_DOUBT}",
        )
        options = ("--interval", str(INTERVAL_S), "--factor", "1", "--timeout", str(scenario.timeout_s))
        attempts = ("--attempts", str(scenario.attempts))
        url = f"http://127.0.0.1:{self._port}/"
        return {TRIGGER: rig.trigger(QUEUE, url, *copies, *options, *attempts)}

    async def strike(self) -> None:
        """Kill the processes that the scenario names, and start them again."""
        while self.strikes:
            await self._logs.until(partial(self._is_due, self.strikes[0]))
            await self._rig.kill_and_start(self.strikes.pop(0).kill)

    def _is_due(self, strike: ProcessKill) -> bool:
        if strike.when == "called":
            return self._consumer.calls.total() >= strike.count
        return sum(step.event == strike.when for step in self._logs.steps) >= strike.count

    # Producer and consumer

    async def produce(self) -> None:
        """Send all messages as a producer must: repeat each submission until its answer is final."""
        if self._scenario.via == "client":
            async with self._rig.connect(SENDER) as client:
                for place, message in enumerate(self._messages):
                    queue = f"{DESTINATION}\\{QUEUE}"
                    sent = await client.send(queue, message.body, transactional=True, final_ack=True)
                    self._messages[place] = replace(message, key=str(sent))
                    self.handover.accepted[str(sent)] = str(sent)
            return
        for message in self._messages:
            for _ in range(self._scenario.unread):
                await self._submit_unread(message.key)
            await PostingProducer(f"http://{self._address}", [message], self.handover).run()

    async def _submit_unread(self, key: str) -> None:
        """Hand a message in, and hang up without reading the answer once the message is accepted."""
        host, _, port = self._address.partition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        async with stream:
            head = f"POST /queues/{PLACE}/messages HTTP/1.1\r\nHost: gateway\r\nIdempotency-Key: {key}\r\n"
            await stream.send_all(f"{head}Content-Length: {len(key)}\r\n\r\n{key}".encode())
            await self._logs.until(lambda: any(step.facts.get("key") == key for step in self._logs.steps))

    async def consume(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the consumer at once or, if the scenario has `absent`, once that many reads have been rolled back."""
        if absent := self._scenario.absent:
            task_status.started(self._port)
            await self._logs.until(lambda: self._at_queue()["rolled-back"] >= absent)
            await self._consumer.serve(self._port)
        else:
            await self._consumer.serve(self._port, task_status=task_status)

    async def settled(self) -> None:
        """Wait until each message has left its queue for good."""
        await self._logs.until(lambda: self._at_queue()["committed"] == len(self.handover.accepted))

    # What came of it

    def _at_queue(self) -> Counter[str]:
        """Return how many messages have reached each waypoint in their queue."""
        messages = set(self.handover.accepted.values())
        return Counter(
            step.event
            for step in self._logs.steps
            if step.who == DESTINATION and step.facts.get("queue") == QUEUE and step.message in messages
        )

    async def judged(self, before: Collection[str]) -> tuple[dict[str, int], list[str]]:
        """Return the number of times that each stage was reached, and the broken promises.

        Args:
            before: the identifiers of all messages of earlier scenarios.
        """
        self._logs.look()
        async with self._rig.connect(DESTINATION) as client:
            waiting = {queue.name: queue.waiting for queue in (await client.queues()).local}
        audit, consumer, handover = await self._rig.audit(), self._consumer, self.handover
        known = {message: end_of(known) for message, known in audit.answered.items()}
        is_heard = self._scenario.via == GATEWAY
        if is_heard:  # The others were sent from within, and answered by nobody.
            known |= {m: End.UNACCOUNTED for m in handover.accepted.values() if m not in known}
        events = Counter((step.who, step.event) for step in self._logs.steps)
        at_queue = self._at_queue()
        order = list(handover.accepted)
        places = [order.index(key) for key in consumer.reached if key in handover.accepted]
        counts = {
            "accepted": len(
                {s.message for s in self._logs.steps if (s.who, s.event) == (SENDER, "accepted")}
            ),
            "dropped": events[SENDER, "duplicate-dropped"],
            "read": at_queue["delivered"],
            "attempted": events[f"{DESTINATION} trigger", "attempted"],
            "rolled_back": at_queue["rolled-back"],
            "committed": at_queue["committed"],
            "error_queue": waiting[ERRORS],
            "in_doubt": waiting[IN_DOUBT],
            "validator": len(consumer.reached),
            "duplicates": consumer.duplicates,
            "out_of_order": sum(later < earlier for earlier, later in pairwise(places)),
            "unaccounted": sum(end is End.UNACCOUNTED for end in known.values()),
        }
        assert set(counts) == set(STAGES)
        ledger = EdgeLedger(
            messages=self._messages,
            handover=handover,
            processed=consumer.reached,
            failed=await self._rig.given_up(ERRORS, IN_DOUBT),
            audited={message: end for message, end in known.items() if message not in before},
            is_heard=is_heard,
            is_honest=not LIARS & set(self._scenario.cues),
        )
        twice = {
            RunOracle.DOUBLED: [f"{consumer.duplicates} came again"]
            * bool(consumer.duplicates and ledger.is_honest)
        }
        return counts, judged("validate", ledger.found(), twice, excess(self._rig.usage))


async def validate(
    scenarios: Mapping[str, ValidationScenario], begin: Callable[[str], None] = lambda name: None
) -> list[Outcome]:
    """Run scenarios, one after the other, on the same nodes. The logs stay if a result is not as expected.

    Args:
        begin: called with the name of each scenario before it runs.
    """
    rig, outcomes = Validation(new_folder("validate")), []
    async with rig.running():
        for name, scenario in scenarios.items():
            begin(name)
            outcomes.append(await rig.outcome(name, scenario))
    if all(outcome.holds for outcome in outcomes):
        shutil.rmtree(rig.directory)
    return outcomes
