"""The program that a gateway's POSTs are compared with: uvicorn and SQLite, with one insert per POST.

It keeps only the most basic promises of a gateway: a POST that is answered with 200 is on disk, and no id is accepted
twice. It is an ASGI application without a framework, which would cost more. With `each`, there is one commit per POST.
With `all`, there is one for all waiting POSTs, which are those that arrived during the previous commit.

python -m tests.bench.programs.accepting FILE all
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn

from mqproto.simulator.base.program.output import end_with_input

Message = MutableMapping[str, Any]
Waiting = tuple[str, bytes, asyncio.Future[bool]]

KEY: Final = b"idempotency-key"
SCHEMA: Final = "CREATE TABLE message (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID"
INSERT: Final = "INSERT OR IGNORE INTO message (key, body) VALUES (?, ?)"


def database(path: str) -> sqlite3.Connection:
    """Open a database in which committed data is on disk, with one flush per commit."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL").close()
    db.execute("PRAGMA synchronous = FULL").close()
    return db


class Accepting:
    """The application, with its database in a file."""

    def __init__(self, file: str, *, together: bool) -> None:
        self._db = database(file)
        self._db.execute(SCHEMA)
        self._together = together
        self._waiting: list[Waiting] = []

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        assert scope["type"] == "http"
        body, more = b"", True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        key = dict(scope["headers"]).get(KEY, b"").decode("latin-1")
        is_new = await self._committed(key, body) if self._together else self._insert(key, body)
        answer = b'{"duplicate":%b}' % (b"false" if is_new else b"true")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _insert(self, key: str, body: bytes) -> bool:
        """Insert a key; return whether it was new. Outside a transaction, the insert is flushed immediately."""
        return bool(self._db.execute(INSERT, (key, body)).rowcount)

    async def _committed(self, key: str, body: bytes) -> bool:
        """Insert a key in one transaction with all others that the loop reads before it commits."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._commit)
        self._waiting.append((key, body, loop.create_future()))
        return await self._waiting[-1][2]

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._db.execute("BEGIN")
        are_new = [self._insert(key, body) for key, body, _ in waiting]
        self._db.execute("COMMIT")
        for (_, _, future), is_new in zip(waiting, are_new, strict=True):
            if not future.done():
                future.set_result(is_new)


def main() -> None:
    """Serve until SIGTERM, or until the standard input ends."""
    end_with_input()
    [_, file, commit] = sys.argv
    # asyncio sends answers without delay only over sockets that say that they are TCP's.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(1_024)
    print(f"ready http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    # Said, or it would take what is faster where that is installed.
    config = uvicorn.Config(
        Accepting(file, together=commit == "all"),
        http="h11",
        loop="asyncio",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
