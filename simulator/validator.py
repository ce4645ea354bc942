"""The consumer of a validation: it answers each call as it is told to, and counts what reached it.

It keeps what it has processed by the producer's id, as the message consumer of "Transactions in OSB. Reliable
Messaging" keeps it in a database: a message that comes again is a duplicate, and is dropped with a success.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final, Self

import h11
import trio

READ_BYTES: Final = 65_536
BODY_LIMIT_BYTES: Final = 2**20
"""Whoever sends more is not the trigger."""
CODE: Final = b'{"code": "no-such-customer"}'
"""What a business error says."""


class Cue(StrEnum):
    """What the consumer does at a call, and what it means."""

    meaning: str

    def __new__(cls, name: str, meaning: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member

    ACCEPT = "accept", "processes the message, and answers 200"
    FAIL = "fail", "answers 500, and has not processed it"
    REFUSE = "refuse", "breaks the connection at once, and has not read it"
    TIME_OUT = "time-out", "never answers, and has not processed it"
    LATE = "late", "processes it, and answers when nobody waits any more"
    DIE = "die", "processes it, and dies before it answers"
    BUSINESS_ERROR = "business-error", "answers 422 with a service code: it will never accept the message"


PROCESSES: Final = frozenset({Cue.ACCEPT, Cue.LATE, Cue.DIE})


class Validator:
    """The final destination of messages.

    Args:
        cues: what to do at the first call for each message, at its second, and so on; then it accepts.
        only: the number of the one message that they are for, which stands at the end of its body; None for each.
    """

    def __init__(self, cues: Sequence[Cue], only: int | None = None) -> None:
        self.calls: Counter[str] = Counter()
        """By the producer's id, how often a message was brought here."""
        self.reached: list[str] = []
        """The ids of what was processed, in order; each once."""
        self.duplicates = 0
        """How often something came that was processed before."""
        self._cues = cues
        self._only = only
        self._processed: set[str] = set()

    async def serve(
        self, port: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen at a port of 127.0.0.1 until cancelled."""
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        task_status.started()
        await trio.serve_listeners(self._connection, listeners)

    async def _connection(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            async with stream:
                connection = h11.Connection(h11.SERVER)
                while (request := await _request(connection, stream)) is not None:
                    answer = await self._answer(*request, stream)
                    if answer is None:
                        return
                    await stream.send_all(_response(connection, *answer))
                    if connection.our_state is h11.MUST_CLOSE:
                        return
                    connection.start_next_cycle()

    async def _answer(self, key: str, body: bytes, stream: trio.SocketStream) -> tuple[int, bytes] | None:
        """What the consumer says of a message; None if it says nothing."""
        number = body.rpartition(b"-")[2]
        cue = self._cue(key, int(number) if number.isdigit() else -1)
        if cue in PROCESSES:
            if key in self._processed:
                self.duplicates += 1
            else:
                self._processed.add(key)
                self.reached.append(key)
        match cue:
            case Cue.ACCEPT:
                return 200, b""
            case Cue.FAIL:
                return 500, b""
            case Cue.BUSINESS_ERROR:
                return 422, CODE
            case Cue.TIME_OUT | Cue.LATE:
                await stream.receive_some()  # Whoever called has given up, and closes.
                return None
            case _:
                return None

    def _cue(self, key: str, number: int) -> Cue:
        call = self.calls[key]
        self.calls[key] += 1
        if call < len(self._cues) and self._only in (None, number):
            return self._cues[call]
        return Cue.ACCEPT


async def _request(connection: h11.Connection, stream: trio.SocketStream) -> tuple[str, bytes] | None:
    """The producer's id in the next request, and its body; None if there is no further request."""
    key, body = "", b""
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(READ_BYTES))
            case h11.Request(headers=headers):
                key = dict(headers).get(b"idempotency-key", b"").decode("ascii", "replace")
            case h11.Data(data=data):
                body += data
                if len(body) > BODY_LIMIT_BYTES:
                    return None
            case h11.EndOfMessage():
                return key, body
            case h11.ConnectionClosed() | h11.PAUSED:
                return None


def _response(connection: h11.Connection, status: int, body: bytes) -> bytes:
    headers = [("Content-Length", str(len(body))), ("Content-Type", "application/json")]
    parts = (
        connection.send(h11.Response(status_code=status, headers=headers)),
        connection.send(h11.Data(data=body)),
        connection.send(h11.EndOfMessage()),
    )
    return b"".join(part or b"" for part in parts)
