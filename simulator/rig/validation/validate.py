"""`mqproto validate`: a producer, nodes, a trigger and a consumer that fails on cue; each stage is counted and checked.

The "Test Project" of "Transactions in OSB. Reliable Messaging" records how often a message is read from its queue, and
whether it reaches its final destination. Here everything is real but the consumer: processes, disks, HTTP. What
happened is counted from their logs, and what the consumer has seen from itself.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import MqprotoError
from mqproto.edge.custody import End
from mqproto.simulator.client import connect
from mqproto.simulator.client.story import Step, logs_in, read_step
from mqproto.simulator.edges.operators.reading import audited
from mqproto.simulator.rig.load.posting import Handover, Outgoing, Producer
from mqproto.simulator.rig.load.validator import Validator, scripted
from mqproto.simulator.rig.rig import new_folder
from mqproto.simulator.rig.supervisor import Programs, Supervisor, programs_in, supervised
from mqproto.simulator.rig.validation.scenario import STAGES, Outcome, Scenario, Strike
from mqproto.simulator.topology import DeclaredQueue, Topology, load
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.ports import reserved_address

SENDER, DESTINATION, QUEUE, ERRORS, IN_DOUBT = "sender", "destination", "orders", "errors", "in-doubt"
PLACE: Final = f"{DESTINATION}%5C{QUEUE}"
"""The queue, in a URL."""
LIMIT_S: Final = 60.0
"""How long a scenario may take; what has not happened by then will not."""
LOOK_S: Final = 0.05
INTERVAL_S: Final = 0.1
"""Until the trigger's second attempt, and its third, and so on."""


class ValidationError(MqprotoError):
    """A scenario could not be run to its end."""


class Logs:
    """What the logs in a folder say, as far as they are written."""

    def __init__(self, directory: Path) -> None:
        self.steps: list[Step] = []
        self._directory = directory
        self._read_bytes: Counter[Path] = Counter()
        self.look()
        self.steps.clear()  # What was there before is of other scenarios.

    def look(self) -> None:
        """Read on."""
        for path in logs_in(self._directory):
            with path.open("rb") as file:
                file.seek(self._read_bytes[path])
                whole, end, _ = file.read().rpartition(b"\n")
            self._read_bytes[path] += len(whole) + len(end)
            self.steps += filter(None, map(read_step, whole.split(b"\n")))

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until something has happened, as what is in the logs or else is known tells."""
        self.look()
        while not happened():
            await trio.sleep(LOOK_S)
            self.look()


@dataclass(frozen=True)
class Stage:
    """What a scenario has around it.

    consumer_port, gateway_port: of 127.0.0.1.
    programs: the gateway and the trigger, while they run.
    sent: by the producer's id, the identifiers of the messages that were accepted, in the order of sending.
    """

    name: str
    scenario: Scenario
    nodes: Supervisor
    logs: Logs
    validator: Validator
    consumer_port: int
    gateway_port: int
    programs: Programs
    sent: dict[str, str] = field(default_factory=dict)

    # Processes

    async def start(self, name: str) -> None:
        """Start the gateway or the trigger.

        Raises:
            NodeError: it ended instead, or was not ready in time.
        """
        await self.programs.start(name, self._command(name))

    def _command(self, name: str) -> list[str]:
        topology = str(self.nodes.topology_file(SENDER))
        if name == "gateway":
            return ["gateway", SENDER, "--topology", topology, "--listen", f"127.0.0.1:{self.gateway_port}"]
        scenario = self.scenario
        return [
            *("trigger", f"{DESTINATION}\\{QUEUE}", "--topology", topology),
            *("--url", f"http://127.0.0.1:{self.consumer_port}/"),
            *("--error-queue", f"{DESTINATION}\\{ERRORS}", "--in-doubt-queue", f"{DESTINATION}\\{IN_DOUBT}"),
            *("--interval", str(INTERVAL_S), "--factor", "1", "--timeout", str(scenario.timeout_s)),
            *("--attempts", str(scenario.attempts)),
        ]

    async def strike(self) -> None:
        """Kill whom the scenario names, and start it again."""
        for strike in self.scenario.strikes:
            await self.logs.until(partial(self._is_due, strike))
            if strike.kill in self.nodes.topology.nodes:
                await self.nodes.kill(strike.kill)
                await self.nodes.start(strike.kill)
            else:
                await self.programs.kill(strike.kill)
                await self.start(strike.kill)

    def _is_due(self, strike: Strike) -> bool:
        if strike.when == "called":
            return self.validator.calls.total() >= strike.count
        return sum(step.event == strike.when for step in self.logs.steps) >= strike.count

    # Producer and consumer

    async def produce(self) -> None:
        """Send all messages, by the rules of a producer: what was answered 200 is not sent again, all else is."""
        for number in range(self.scenario.messages):
            key = f"{Path(self.name).stem}-{number}"
            if self.scenario.via == "client":
                async with connect(self.nodes.topology, SENDER, self.nodes.directory) as client:
                    message = await client.send(
                        f"{DESTINATION}\\{QUEUE}", key.encode(), transactional=True, final_ack=True
                    )
                self.sent[str(message)] = str(message)
                continue
            for _ in range(self.scenario.unread):
                await self._submit_unread(key)
            self.sent[key] = await self._submit(key)

    async def _submit(self, key: str) -> str:
        """By the rules of a producer."""
        handover = Handover()
        message = Outgoing(key, PLACE, key.encode())
        await Producer(f"http://127.0.0.1:{self.gateway_port}", [message], handover).run()
        if key in handover.refused:
            raise ValidationError(f"the gateway refuses {key}: {handover.refused[key]}")
        return handover.accepted[key]

    async def _submit_unread(self, key: str) -> None:
        """Hand a message in, and hang up once it is accepted, without a look at the answer."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.gateway_port)
        async with stream:
            head = f"POST /queues/{PLACE}/messages HTTP/1.1\r\nHost: gateway\r\nIdempotency-Key: {key}\r\n"
            await stream.send_all(f"{head}Content-Length: {len(key)}\r\n\r\n{key}".encode())
            await self.logs.until(lambda: any(step.facts.get("key") == key for step in self.logs.steps))

    async def consume(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Be there from the first message on, or after a while."""
        if self.scenario.absent:
            task_status.started(self.consumer_port)
            await self.logs.until(lambda: self._at_queue()["rolled-back"] >= self.scenario.absent)
            await self.validator.serve(self.consumer_port)
        else:
            await self.validator.serve(self.consumer_port, task_status=task_status)

    async def settled(self) -> None:
        """Wait until each message has left its queue for good."""
        await self.logs.until(lambda: self._at_queue()["committed"] == len(self.sent))

    # What is counted

    def _at_queue(self) -> Counter[str]:
        """How often the messages came to each waypoint in their queue."""
        messages = set(self.sent.values())
        return Counter(
            step.event
            for step in self.logs.steps
            if step.who == DESTINATION and step.facts.get("queue") == QUEUE and step.message in messages
        )

    async def count(self) -> dict[str, int]:
        """How often each stage was reached."""
        self.logs.look()
        events = Counter((step.who, step.event) for step in self.logs.steps)
        at_queue = self._at_queue()
        async with connect(self.nodes.topology, DESTINATION, self.nodes.directory) as client:
            waiting = {queue.name: queue.waiting for queue in (await client.queues()).local}
        order = list(self.sent)
        places = [order.index(key) for key in self.validator.reached if key in self.sent]
        counts = {
            "accepted": len({s.message for s in self.logs.steps if (s.who, s.event) == (SENDER, "accepted")}),
            "dropped": events[f"{SENDER} gateway", "duplicate-dropped"],
            "read": at_queue["delivered"],
            "attempted": events[f"{DESTINATION} trigger", "attempted"],
            "rolled_back": at_queue["rolled-back"],
            "committed": at_queue["committed"],
            "error_queue": waiting[ERRORS],
            "in_doubt": waiting[IN_DOUBT],
            "validator": len(self.validator.reached),
            "duplicates": self.validator.duplicates,
            "out_of_order": sum(later < earlier for earlier, later in pairwise(places)),
            "unaccounted": await trio.to_thread.run_sync(self._unaccounted),
        }
        assert set(counts) == set(STAGES)
        return counts

    def _unaccounted(self) -> int:
        """What `mqproto audit` misses, of this scenario and those before it, or does not know to be answered 200."""
        found = audited(Place(self.nodes.topology, self.nodes.directory))
        unknown = set(self.sent.values()) - set(found.answered) if self.scenario.via == "gateway" else set()
        return len(found.counted()[End.UNACCOUNTED]) + len(unknown)


def validation_topology() -> Topology:
    """Three nodes in a row, and beside the queue one for errors and one for doubts."""
    three = load("three-node").with_free_ports().with_waypoints()
    node = three.nodes[DESTINATION]
    more = {
        name: DeclaredQueue(name=name, identifier=number, transactional=True)
        for name, number in ((ERRORS, 100), (IN_DOUBT, 101))
    }
    return replace(three, nodes={**three.nodes, DESTINATION: replace(node, queues={**node.queues, **more})})


@asynccontextmanager
async def staged(name: str, scenario: Scenario, nodes: Supervisor) -> AsyncIterator[Stage]:
    """Gateway, trigger and consumer, all ready, and empty queues; all stopped at the end."""
    async with connect(nodes.topology, DESTINATION, nodes.directory) as client:
        for queue in (QUEUE, ERRORS, IN_DOUBT):
            await client.purge(queue)
    async with programs_in(nodes.directory) as programs, trio.open_nursery() as nursery:
        stage = Stage(
            name=name,
            scenario=scenario,
            nodes=nodes,
            logs=Logs(nodes.directory),
            validator=Validator(scripted(scenario.cues, scenario.only)),
            consumer_port=reserved_address()[1],
            gateway_port=reserved_address()[1],
            programs=programs,
        )
        await nursery.start(stage.consume)
        if scenario.via == "gateway":
            await stage.start("gateway")
        await stage.start("trigger")
        yield stage
        nursery.cancel_scope.cancel()


async def validate(
    scenarios: Mapping[str, Scenario], begin: Callable[[str], None] = lambda name: None
) -> list[Outcome]:
    """Run scenarios, one after the other, on the same nodes. The logs stay if something is not as expected.

    Args:
        begin: called with the name of each before it runs.
    """
    folder = new_folder("validate")
    outcomes = []
    async with supervised(validation_topology(), folder) as nodes:
        for name, scenario in scenarios.items():
            begin(name)
            outcomes.append(await _validate(name, scenario, nodes))
    if all(outcome.holds for outcome in outcomes):
        shutil.rmtree(folder)
    return outcomes


async def _validate(name: str, scenario: Scenario, nodes: Supervisor) -> Outcome:
    trouble = f"not all of it had happened after {LIMIT_S:g} s"
    async with staged(name, scenario, nodes) as stage:
        with trio.move_on_after(LIMIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.strike)
                await stage.produce()
                await stage.settled()
            await stage.programs.stop("trigger")  # All that it has to say is in its log then.
            trouble = ""
        outcome = Outcome(name, scenario, await stage.count(), trouble)
    return outcome if outcome.holds else outcome._replace(logs=str(nodes.directory))
