"""A consumer behind HTTP that fails in every way it can, and processes each message once nevertheless.

As "Eliminating Duplicates on the Consumer" asks, it keeps which messages it has processed; of the
queue's side nothing else is expected than that each message comes, in order, until it is answered. It is a document
resolver too, since it knows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final

import trio
from structlog.typing import FilteringBoundLogger

from simulator.httpserver import Answer, BodyLost, Fault, Limits, Request, Server

CALLS: Final = "/orders"
QUESTIONS: Final = "/processed"
CODE: Final = "never-accepted"
"""The service code of its business error."""


class Act(StrEnum):
    """What the consumer does with a call."""

    PROCESS = "processed"
    REFUSE = "business error"
    FAIL = "500"
    HANG = "no answer in time"
    HANG_UP = "hung up"
    PROCESS_AND_FAIL = "processed, then 500"
    PROCESS_AND_HANG = "processed, no answer in time"
    PROCESS_AND_HANG_UP = "processed, hung up"


PROCESSING: Final = frozenset(
    {Act.PROCESS, Act.PROCESS_AND_FAIL, Act.PROCESS_AND_HANG, Act.PROCESS_AND_HANG_UP}
)
HANGING: Final = frozenset({Act.HANG, Act.PROCESS_AND_HANG})
FAILING: Final = frozenset({Act.FAIL, Act.PROCESS_AND_FAIL})


class UnreliableConsumer:
    """Processes messages, and says so or not.

    Args:
        acts: what to do with a message, by its key, its body, and how often it was called for before.
        hang_s: for how long it does not answer; longer than whoever calls has patience.
    """

    def __init__(self, acts: Callable[[str, bytes, int], Act], hang_s: float) -> None:
        self.processed: dict[str, bytes] = {}
        """Bodies by key, in the order in which they were processed."""
        self.refused: set[str] = set()
        """Keys of messages that it said it will never accept."""
        self.acted = Counter[Act]()
        self.duplicates = 0
        """Calls for messages that had been processed, and were dropped."""
        self.asked = 0
        """Questions whether a message has been."""
        self._acts = acts
        self._hang_s = hang_s
        self._calls = Counter[str]()

    async def serve(
        self, log: FilteringBoundLogger, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen on a free port of this machine until cancelled. Starts with the URL, without a path."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port: int = listeners[0].socket.getsockname()[1]
        server = Server(self._answer, _explain, Limits(), log)
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(server.run, listeners))
            task_status.started(f"http://127.0.0.1:{port}")

    async def _answer(self, request: Request) -> Answer:
        body = bytearray()
        while part := await request.part():
            body += part
        [key] = request.header("Idempotency-Key") or [""]
        if request.target == QUESTIONS:
            self.asked += 1
            return _json(200, {"status": "DUPLICATE" if key in self.processed else "NEW"})
        act = self._acts(key, bytes(body), self._calls[key])
        self._calls[key] += 1
        self.acted[act] += 1
        if act is Act.REFUSE:
            self.refused.add(key)
            return _json(422, {"code": CODE, "message": "the amount is below nothing"})
        if act in PROCESSING:
            if key in self.processed:
                self.duplicates += 1
            else:
                self.processed[key] = bytes(body)
        if act in HANGING:
            await trio.sleep(self._hang_s)
        if act in FAILING:
            return _json(500, {"message": "try again"})
        if act is not Act.PROCESS:
            raise BodyLost(None)  # The connection ends without an answer.
        return _json(200, {})


def _json(status: int, answer: dict[str, str]) -> Answer:
    return Answer(status, [("Content-Type", "application/json")], json.dumps(answer).encode())


def _explain(fault: Fault) -> Answer:
    return _json(500 if fault is Fault.FAILED else 400, {"message": fault.value})
