"""A PostgreSQL server only for the tests: it has a folder with a socket in it, but no port that another program may
use.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.memory import memory

SUPERUSER: Final = "mqproto"
SERVER_USER: Final = "postgres"
"""The user that Debian's package creates; PostgreSQL refuses to run as root, so root starts it as this user."""
GUARDED: Final = "guarded"
"""The only role that has to give a password; it exists once a test has made it."""
OPTIONS: Final = "-c listen_addresses='' -c fsync=on -c shared_buffers=16MB -c max_connections=40"
NUMBERS: Final = itertools.count(1)


def program(name: str) -> Path:
    """Return the path of the newest version of one of PostgreSQL's programs; Debian keeps these off the PATH."""
    if found := shutil.which(name):
        return Path(found).resolve()
    versions = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = sorted(versions, key=lambda path: [int(digits) for digits in re.findall(r"\d+", str(path))])
    if not newest:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    return newest[-1]


class Server:
    """A PostgreSQL server in an existing, empty folder.

    The folder's path should be short, because the path of the socket in it may have at most 107 bytes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data = folder / "data"
        self._environment = {"PATH": os.environ["PATH"], "PGDATA": str(self._data), "LC_ALL": "C"}
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(folder, SERVER_USER, SERVER_USER)
            self._as_user = {"user": SERVER_USER, "group": SERVER_USER, "extra_groups": []}
        # What is made here is made anew by each run; what the tests write is flushed as anywhere.
        self._run(
            "initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username", SUPERUSER
        )

        # Only this user is asked for a password.
        hba = self._data / "pg_hba.conf"
        hba.write_text(f"local all {GUARDED} scram-sha-256\n{hba.read_text('utf-8')}", "utf-8")

    def start(self) -> None:
        """Start the server, and return when it answers."""
        options = f"-k '{self.folder}' {OPTIONS}"
        self._run("pg_ctl", "--wait", "--silent", "--log", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop the server, whether clients are connected or not."""
        self._run("pg_ctl", "--wait", "--silent", "--mode=fast", "stop")

    def kill(self) -> None:
        """Stop the server as a crash would: without telling anybody, so that it reads its log when it next starts."""
        self._run("pg_ctl", "--wait", "--silent", "--mode=immediate", "stop")

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Execute statements as the superuser, each in its own transaction."""
        with psycopg.connect(
            host=str(self.folder), user=SUPERUSER, dbname=database, autocommit=True
        ) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def url(self, database: str = "postgres", user: str = SUPERUSER, more: str = "") -> str:
        """Return the URL of a database."""
        return f"postgresql+psycopg://{user}@/{database}?host={self.folder}{more}"

    def new_schema(self) -> str:
        """Return the URL of a database with a new, empty schema."""
        schema = f"place_{next(NUMBERS)}"
        self.execute(f"CREATE SCHEMA {schema}")
        return self.url(more=f"&options=-csearch_path%3D{schema}")

    @contextmanager
    def guarded(self) -> Iterator[int]:
        """Yield the id of a process that stops the server and removes its folder when our process leaves the block or
        dies.
        """
        stop = 'read -r line; "$0" --wait --silent --mode=fast stop; cd /; rm -rf "$1"'
        with subprocess.Popen(
            ["sh", "-c", stop, program("pg_ctl"), self.folder],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # What interrupts us is not for it.
            **self._as_user,
        ) as guard:
            yield guard.pid

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [program(name), *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self._as_user,
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stdout}{self._log()}"

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text("utf-8", "replace")[-2_000:] if log.exists() else ""


@contextmanager
def running_server() -> Iterator[Server]:
    """Provide a running server in a folder that is removed at the end, however this process ends."""
    program("initdb")
    folder = Path(tempfile.mkdtemp(dir=memory(), prefix="mqproto-"))
    try:
        server = Server(folder)
    except BaseException:
        shutil.rmtree(folder)
        raise
    with server.guarded():
        server.start()
        yield server
