"""`mqproto demo --edges`, which sends messages from producers over HTTP to a consumer behind HTTP, while every program
between them is killed.

Producers hand messages to the gateway of the first of three queue managers, and a trigger calls the consumer. All four
programs are processes, and each is killed again and again while the messages cross. The producers and the consumer are
in this process, because they know what must have happened. At the end, accepted and processed messages are compared.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import trio

from mqproto.edge.custody import end_of
from mqproto.simulator.base.screen import ProgressScreen
from mqproto.simulator.client import Client, InDoubt, NodeUnreachable
from mqproto.simulator.client.story import logs_in, read_step, story_of, told
from mqproto.simulator.rig.links import free
from mqproto.simulator.rig.load.posting import Handover, Outgoing, PostingProducer
from mqproto.simulator.rig.load.validator import QUESTIONS, Cue, Validator
from mqproto.simulator.rig.rig import new_folder, until
from mqproto.simulator.rig.validation.edgerig import EdgeRig, with_gateway
from mqproto.simulator.rig.validation.report import EdgesReport
from mqproto.simulator.topology import load
from mqproto.simulator.topology.ports import reserved_address

PRODUCERS: Final = 8
INVALID: Final = 0.01
"""The share of messages that are invalid, so that the consumer never accepts them."""
MISSPELT: Final = 0.005
"""The share of messages that are handed in for a queue that does not exist."""
CUES: Final = {
    Cue.ACCEPT: 0.90,
    Cue.FAIL: 0.03,
    Cue.REFUSE: 0.02,
    Cue.DIE: 0.02,
    Cue.FAIL_LATE: 0.02,
    Cue.TIME_OUT: 0.005,
    Cue.LATE: 0.005,
}
"""The actions of the consumer for a valid message, and the probability of each."""
ANSWER_S: Final = 0.5
"""The time, in seconds, that the trigger waits for the consumer's answer."""
ATTEMPTS: Final = 100
ATTEMPTS_ROUGH: Final = 5
"""The limits for attempts in other runs (above) and in a rough run. In a rough run, all attempts together take less
than a second, so a message is given up while the consumer is down.
"""
DOWN_S: Final = 2.0
FULL_S: Final = 1.0
FULL_KB: Final = 8
"""For a rough run: how long the consumer is down and how long the queue is full, in seconds (both above), and the quota
of the full queue in KB.
"""
TRIGGER: Final = "trigger"
VICTIMS: Final = (
    ("destination",),
    (TRIGGER,),
    ("sender",),
    ("intermediate",),
    ("sender", "intermediate"),
    (TRIGGER, "destination"),
)
"""The programs to kill, a line at a time; those in one line are killed at the same instant. After the last line, the
first line is used again.
"""
ROUNDS: Final = 3
SETTLE_S: Final = 90.0
"""All owed messages must arrive within this many seconds after the last message was handed in."""
LINGER_S: Final = 1.0
"""The time, in seconds, for which to wait for messages that must not come."""
BEAT_S: Final = 0.05


async def run_edges_demo(
    count: int,
    seed: int = 0,
    *,
    history: str = "",
    rounds: int = ROUNDS,
    rough: bool = False,
    screen: ProgressScreen | None = None,
) -> EdgesReport:
    """Run the demo; return its report.

    Args:
        count: the total number of messages of all producers.
        seed: determines the kinds of messages, and the consumer's action for each.
        history: the URL of the document history's database; by default an SQLite file.
        rounds: the number of times that each line of VICTIMS has its turn.
        rough: whether the queue is sometimes purged or full, and the consumer is sometimes down for longer than all
            attempts.

    Raises:
        NodeError: one of the programs does not start.
    """
    demo = EdgesDemo(count, seed, screen, history)
    demo.rounds, demo.is_rough = rounds, rough
    report = await demo.run()
    if not report.broken:
        shutil.rmtree(demo.directory)  # Otherwise the logs in it say more.
    return report


def messages_of(producer: int, count: int, seed: int) -> list[Outgoing]:
    """Return the messages that one producer hands in, in order."""
    messages = []
    for number in range(1, count + 1):
        key = f"{producer}-{number}"
        dice = random.Random(f"{seed}/message/{key}")
        order = {
            "producer": producer,
            "number": number,
            "amount_cents": -1 if dice.random() < INVALID else dice.randrange(1_000_000),
            "note": "x" * dice.randrange(2_000),
        }
        queue = "order" if dice.random() < MISSPELT else "orders"
        label = f"order {number} of producer {producer}"
        body = json.dumps(order).encode()
        messages.append(Outgoing(key, queue, body, label, producer + 1, "application/json"))
    return messages


class EdgesDemo(EdgeRig):
    """One run; the arguments are those of `run_edges_demo`."""

    rounds, is_rough = ROUNDS, False

    def __init__(self, count: int, seed: int, screen: ProgressScreen | None, history: str = "") -> None:
        super().__init__(with_gateway(free(load("edges")), history), new_folder("edges"), screen)
        self.history = history
        self._seed = seed
        self._is_down = False
        shares = [count // PRODUCERS + (number < count % PRODUCERS) for number in range(PRODUCERS)]
        self._messages = [messages_of(number, share, seed) for number, share in enumerate(shares)]
        self._handover = Handover()
        self._consumer = Validator(self._cue)
        self._kills = Counter[str]()

    async def run(self) -> EdgesReport:
        """Start everything, send messages, kill programs, and wait until all owed messages have arrived.

        Raises:
            NodeError: a program does not start.
        """
        _, port = reserved_address()
        consume = partial(self._consumer.serve, port)
        async with self.running(), self.edges(consume, self._programs(port)):
            with self.screen.shown():
                await self._hand_in_and_kill(self.gateway_url)
            duration_s = self.elapsed_s()
            await self.programs.stop(TRIGGER)
            audit = await self.audit(self.history)
            letters = await self._dead_letters()
            failed = await self.given_up("errors")
        said, longest = _said_in(self.directory)
        story = list(told(story_of(longest, logs_in(self.directory), self.topology), self.topology))
        return EdgesReport(
            seed=self._seed,
            duration_s=duration_s,
            folder=str(self.directory),
            kills=dict(self._kills),
            messages=[message for messages in self._messages for message in messages],
            handover=self._handover,
            processed=self._consumer.reached,
            calls=self._consumer.obeyed,
            dropped_by_consumer=self._consumer.duplicates,
            questions=self._consumer.questions,
            failed=failed,
            audited={message: end_of(known) for message, known in audit.answered.items()},
            letters=letters if self.is_rough else None,
            said=said,
            usage=self.usage,
            story=story,
        )

    def _cue(self, key: str, body: bytes, call: int) -> Cue:
        """Return the consumer's action, which depends only on the seed, the message and the number of earlier calls."""
        if self._is_down:
            return Cue.FAIL
        if json.loads(body)["amount_cents"] < 0:
            return Cue.BUSINESS_ERROR
        dice = random.Random(f"{self._seed}/call/{key}/{call}")
        [cue] = dice.choices(list(CUES), list(CUES.values()))
        return cue

    # Traffic

    async def _hand_in_and_kill(self, url: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kill_all)
            nursery.start_soon(self._look)
            if self.is_rough:
                nursery.start_soon(self._be_rough)
            async with trio.open_nursery() as producing:
                for number, messages in enumerate(self._messages):
                    dice = random.Random(f"{self._seed}/producer/{number}")
                    producing.start_soon(PostingProducer(url, messages, self._handover, dice).run)
            with trio.move_on_after(SETTLE_S):
                await until(partial(self._is_done, 1.0, self.rounds * sum(map(len, VICTIMS))), BEAT_S)
                if self.is_rough:
                    await self._until_nothing_waits()
                await trio.sleep(LINGER_S)
            nursery.cancel_scope.cancel()

    @property
    def _count(self) -> int:
        return sum(map(len, self._messages))

    @property
    def _done(self) -> int:
        """The number of messages that have ended: refused by the gateway, processed, or refused by the consumer.

        In a rough run, messages also end in other ways, so this counts the messages with a final answer from the
        gateway.
        """
        if self.is_rough:
            return len(self._handover.refused) + len(self._handover.accepted)
        return len(self._handover.refused) + len(self._consumer.reached) + len(self._consumer.refused)

    def _is_done(self, share: float, kills: int = 0) -> bool:
        """Return whether at least this share of all messages has ended, and at least this many kills have been carried
        out.
        """
        return self._done >= share * self._count and self._kills.total() >= kills

    async def _look(self) -> None:
        """Show the progress of the run."""
        while True:
            handed_in = len(self._handover.accepted) + len(self._handover.refused)
            self.screen.show(
                f"{handed_in:,} handed in, {self._done:,} at their end, {self._kills.total()} kills"
            )
            await trio.sleep(BEAT_S)

    async def _dead_letters(self) -> set[str]:
        """Receive all transactional dead letters of the first node, and return their identifiers.

        They are received because a peek might show only some.
        """
        letters = set[str]()
        async with self.connect("sender") as client:
            while found := await client.receive("deadxact", limit=100, timeout_s=0):
                letters |= {str(letter.id) for letter in found}
        return letters

    # What is rough

    async def _be_rough(self) -> None:
        """Now and then, make the queue full, purge it, or keep the consumer down for longer than all attempts take."""
        dice = random.Random(f"{self._seed}/rough")
        turns = [self._purge, self._have_it_full, self._be_down] * self.rounds
        dice.shuffle(turns)
        for turn, act in enumerate(turns, 1):
            await until(partial(self._is_done, turn / (len(turns) + 1)), BEAT_S)
            await act()

    async def _purge(self) -> None:
        self.screen.say("purge orders")
        await self._told(lambda client: client.purge("orders"))

    async def _have_it_full(self) -> None:
        self.screen.say("orders is full")
        await self._told(lambda client: client.change("orders", quota_kb=FULL_KB))
        await trio.sleep(FULL_S)
        await self._told(lambda client: client.change("orders", quota_kb=0))

    async def _be_down(self) -> None:
        self.screen.say("the consumer is down")
        self._is_down = True
        await trio.sleep(DOWN_S)
        self._is_down = False

    async def _told(self, act: Callable[[Client], Awaitable[object]]) -> None:
        """Carry out an operator's action on the last node, which may be down at the moment."""
        while True:
            try:
                async with self.connect("destination") as client:
                    await act(client)
                    return
            except (NodeUnreachable, InDoubt):
                await trio.sleep(BEAT_S)

    async def _until_nothing_waits(self) -> None:
        """Wait until every message has ended, so that none is left in an outgoing queue or in `orders`."""
        while True:
            waiting = 0
            for name in self.topology.nodes:
                with suppress(NodeUnreachable):
                    async with self.connect(name) as client:
                        status = await client.queues()
                    waiting += sum(queue.waiting for queue in status.outgoing)
                    waiting += sum(queue.waiting for queue in status.local if queue.name == "orders")
            if not waiting:
                return
            await trio.sleep(BEAT_S)

    # Programs that die

    async def _kill_all(self) -> None:
        """Kill one line of VICTIMS after another, spread evenly over the messages that end."""
        turns = list(VICTIMS) * self.rounds
        for turn, victims in enumerate(turns, 1):
            await until(partial(self._is_done, turn / (len(turns) + 1)), BEAT_S)
            self.screen.say(f"kill {' and '.join(victims)}")
            async with trio.open_nursery() as nursery:
                for name in victims:
                    nursery.start_soon(self._kill_and_start, name)

    async def _kill_and_start(self, name: str) -> None:
        await self.kill_and_start(name)
        self._kills[name] += 1

    def _programs(self, port: int) -> dict[str, list[str]]:
        """Return the command that starts the trigger."""
        history = ["--history", self.history] if self.history else []
        consumer = f"http://127.0.0.1:{port}"
        return {
            TRIGGER: self.trigger(
                "orders",
                consumer + "/orders",
                *history,
                *("--resolver", consumer + QUESTIONS),
                *("--error-queue", r"destination\errors", "--group-by", "correlation"),
                *("--timeout", f"{ANSWER_S}", "--interval", "0.05", "--max-delay", "1"),
                *("--attempts", str(ATTEMPTS_ROUGH if self.is_rough else ATTEMPTS)),
                # With a breaker an outage uses up no attempts, and nothing would be given up.
                *(("--breaker", "0") if self.is_rough else ()),
            ),
        }


def _said_in(folder: Path) -> tuple[Counter[tuple[str, str]], str]:
    """Return the number of log lines for each writer and event, and the message with the most log lines."""
    said = Counter[tuple[str, str]]()
    steps = Counter[str]()
    for path in logs_in(folder):
        for step in filter(None, map(read_step, path.read_bytes().splitlines())):
            said[step.who, step.event] += 1
            steps[step.message] += 1
    del steps[""]
    return said, steps.most_common(1)[0][0]
