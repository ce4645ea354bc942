"""What a trigger's deliveries are compared with: a worker on a table of SQLite, with one commit a message.

It takes the first row that is not done, posts it, and marks it done once the answer is 200. So order is kept, nothing
is lost, and what it had posted when it died is posted again: a trigger's consumer hears of it once.

    python -m tests.bench.contenders.working FILE http://127.0.0.1:8080/ httpx
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import httpx

from simulator.command.options import end_with_input
from tests.bench.contenders.accepting import database

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS message (number INTEGER PRIMARY KEY, body BLOB NOT NULL, done INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS waiting ON message (number) WHERE done = 0;
"""
NEXT: Final = "SELECT number, body FROM message WHERE done = 0 ORDER BY number LIMIT 1"
PAUSE_S: Final = 0.02
"""How long it waits where nothing is to be done."""


def poster(client: str, url: str) -> Callable[[int, bytes], int]:
    """What posts a body and gives the status: httpx, as a trigger has it, or the standard library, which does less."""
    if client == "httpx":
        session = httpx.Client(trust_env=False)
        return lambda number, body: session.post(url, content=body, headers=headers(number)).status_code
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc)

    def post(number: int, body: bytes) -> int:
        connection.request("POST", address.path, body, headers(number))
        with connection.getresponse() as answer:
            answer.read()
            return answer.status

    return post


def headers(number: int) -> dict[str, str]:
    """An id, as a trigger gives one."""
    return {"Idempotency-Key": str(number), "Content-Type": "application/octet-stream"}


def main() -> None:
    """Work until the standard input ends."""
    end_with_input()
    [_, file, url, client] = sys.argv
    post = poster(client, url)
    db = database(file)
    db.executescript(SCHEMA)
    print("ready", flush=True)
    while True:
        row = db.execute(NEXT).fetchone()
        if row is None:
            time.sleep(PAUSE_S)
        elif post(*row) == 200:
            db.execute("UPDATE message SET done = 1 WHERE number = ?", row[:1])


if __name__ == "__main__":
    main()
