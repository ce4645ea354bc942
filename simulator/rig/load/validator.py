"""A consumer behind HTTP that answers each call as a script says, and counts the messages that reached it.

It keeps processed messages, keyed by the producer's id, as the message consumer of "Transactions in OSB. Reliable
Messaging" keeps them in a database. A message that arrives again is a duplicate: it is dropped, and the answer reports
success. The consumer is also a document resolver, because it knows the processed messages.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from mqproto.base.words import Word
from mqproto.simulator.base.http.server import Answer, BodyLost, Fault, Limits, Request, Server
from mqproto.simulator.base.log import node_log

BODY_LIMIT_BYTES: Final = 2**20
"""The maximum size of the body of a call, in bytes; a client that sends more is not the trigger."""
CODE: Final = "no-such-customer"
"""The service code of a business error."""
QUESTIONS: Final = "/processed"
"""The path for the question whether the consumer has processed a message. All other paths are for messages."""


class Cue(Word):
    """The ways in which the consumer can respond to a call, with their meanings."""

    ACCEPT = "accept", "processes the message, and answers 200"
    FAIL = "fail", "answers 500, and has not processed it"
    REFUSE = "refuse", "breaks the connection, and has not processed it"
    TIME_OUT = "time-out", "never answers, and has not processed it"
    FAIL_LATE = "fail-late", "processes it, and answers 500"
    LATE = "late", "processes it, and does not answer while anybody waits"
    DIE = "die", "processes it, and dies before it answers"
    BUSINESS_ERROR = "business-error", "answers 422 with a service code: it will never accept the message"


PROCESSES: Final = frozenset({Cue.ACCEPT, Cue.FAIL_LATE, Cue.LATE, Cue.DIE})
Script = Callable[[str, bytes, int], Cue]
"""A function that returns the cue for a message, given the producer's id of the message, its body, and the number of
earlier calls for it.
"""


def scripted(cues: Sequence[Cue], only: int | None = None) -> Script:
    """Return a script with a cue for each message's first call, its second call, and so on.

    After the last cue, the consumer accepts the message.

    only: if given, the cues apply only to the message whose body ends with this number; None if they apply to every
        message.
    """

    def cue(key: str, body: bytes, call: int) -> Cue:
        number = body.rpartition(b"-")[2]
        is_meant = only is None or (number.isdigit() and int(number) == only)
        return cues[call] if is_meant and call < len(cues) else Cue.ACCEPT

    return cue


class Validator:
    """The final destination of messages."""

    def __init__(self, script: Script) -> None:
        self.calls = Counter[str]()
        """The number of times that each message was delivered to this consumer, keyed by the producer's id."""
        self.obeyed = Counter[Cue]()
        self.reached: dict[str, bytes] = {}
        """The bodies of processed messages, keyed by the producer's id, in the order of processing."""
        self.refused: set[str] = set()
        """The ids of messages that the consumer will never accept."""
        self.duplicates = 0
        """The number of times that an already processed message arrived."""
        self.questions = 0
        """The number of times that the consumer was asked whether it had processed a message."""
        self._script = script

    async def serve(
        self, port: int = 0, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen on 127.0.0.1 until this task is cancelled. Port 0 means any free port. The value passed to
        `task_status` is the port.
        """
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        server = Server(self._answer, _explain, Limits(), node_log(sys.stderr, "consumer"))
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(server.run, listeners))
            task_status.started(listeners[0].socket.getsockname()[1])

    async def _answer(self, request: Request) -> Answer:
        body = b""
        while part := await request.part():
            body += part
            if len(body) > BODY_LIMIT_BYTES:
                raise BodyLost(None)
        key = next(iter(request.header("Idempotency-Key")), "")
        if request.target == QUESTIONS:
            self.questions += 1
            return _json(200, {"status": "DUPLICATE" if key in self.reached else "NEW"})
        cue = self._script(key, body, self.calls[key])
        self.calls[key] += 1
        self.obeyed[cue] += 1
        if cue in PROCESSES:
            self.duplicates += key in self.reached
            self.reached.setdefault(key, body)
        if cue is Cue.ACCEPT:
            return _json(200, {})
        if cue in (Cue.FAIL, Cue.FAIL_LATE):
            return _json(500, {"message": "not now"})
        if cue is Cue.BUSINESS_ERROR:
            self.refused.add(key)
            return _json(422, {"code": CODE})
        if cue in (Cue.TIME_OUT, Cue.LATE):
            await trio.sleep_forever()
        raise BodyLost(None)  # The connection ends without an answer.


def _json(status: int, answer: dict[str, str]) -> Answer:
    return Answer(status, [("Content-Type", "application/json")], json.dumps(answer).encode())


def _explain(fault: Fault) -> Answer:
    return _json(fault.status, {"message": fault.text})
