"""What a gateway's POSTs are compared with: uvicorn and SQLite, one insert and one commit a POST.

It keeps the least of a gateway's promises: what is answered 200 is on disk, and no id comes twice. An ASGI application
without a framework, as one would cost more.

    python -m tests.bench.load.accepting FILE
"""

from __future__ import annotations

import socket
import sqlite3
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn

from simulator.command.options import end_with_input

Message = MutableMapping[str, Any]

KEY: Final = b"idempotency-key"
SCHEMA: Final = "CREATE TABLE message (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID"


def database(path: str) -> sqlite3.Connection:
    """A database in which what was committed is on disk, with one flush a commit."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL").close()
    db.execute("PRAGMA synchronous = FULL").close()
    return db


class Accepting:
    """The application, with its database in a file."""

    def __init__(self, file: str) -> None:
        self._db = database(file)
        self._db.execute(SCHEMA)

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
        # Without a transaction of its own a statement is one: insert, flush.
        found = self._db.execute("INSERT OR IGNORE INTO message (key, body) VALUES (?, ?)", (key, body))
        answer = b'{"duplicate":%b}' % (b"false" if found.rowcount else b"true")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def main() -> None:
    """Serve until SIGTERM, or until the standard input ends."""
    end_with_input()
    [_, file] = sys.argv
    # asyncio sends answers without delay only over sockets that say that they are TCP's.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(1_024)
    print(f"ready http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    # Said, or it would take what is faster where that is installed.
    config = uvicorn.Config(
        Accepting(file), http="h11", loop="asyncio", lifespan="off", access_log=False, log_level="warning"
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
