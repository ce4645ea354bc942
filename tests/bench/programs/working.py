"""The program that a trigger's deliveries are compared with: a worker on an SQLite table.

It commits once per message. It takes the first row that is not done, posts it, and marks it as done once the answer is
200. So the order is kept and nothing is lost. If it dies after a POST, it posts that row again, whereas a trigger's
consumer gets each message once.

python -m tests.bench.programs.working FILE http://127.0.0.1:8080/
"""

from __future__ import annotations

import sys
import time
from typing import Final

import httpx

from mqproto.simulator.base.program.output import end_with_input
from tests.bench.programs.accepting import database

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS message (number INTEGER PRIMARY KEY, body BLOB NOT NULL, done INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS waiting ON message (number) WHERE done = 0;
"""
NEXT: Final = "SELECT number, body FROM message WHERE done = 0 ORDER BY number LIMIT 1"
PAUSE_S: Final = 0.02
"""The time, in seconds, that the worker waits when there is nothing to do."""


def main() -> None:
    """Work until the standard input ends."""
    end_with_input()
    [_, file, url] = sys.argv
    client = httpx.Client(trust_env=False)
    db = database(file)
    db.executescript(SCHEMA)
    print("ready", flush=True)
    while True:
        row = db.execute(NEXT).fetchone()
        if row is None:
            time.sleep(PAUSE_S)
            continue
        number, body = row
        headers = {"Idempotency-Key": str(number), "Content-Type": "application/octet-stream"}
        if client.post(url, content=body, headers=headers).status_code == 200:
            db.execute("UPDATE message SET done = 1 WHERE number = ?", (number,))


if __name__ == "__main__":
    main()
