"""The tests' PostgreSQL server does not outlive the process that has started it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.databases import SUPERUSER, program

START = """
import sys, tempfile
from pathlib import Path
from tests.databases import Server
from tests.memory import memory
server = Server(Path(tempfile.mkdtemp(dir=memory(), prefix="mqproto-")))
with server.guarded() as guard:
    server.start()
    print(guard, server.folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells when a process ends that is nobody's child"
)
def test_a_server_and_its_folder_are_gone_when_whoever_started_it_was_killed() -> None:
    program("initdb")
    with subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        guard, folder = process.stdout.readline().split()
        psycopg.connect(host=folder, user=SUPERUSER, dbname="postgres").close()
        end = os.pidfd_open(int(guard))
        process.kill()
    select.select([end], [], [])
    os.close(end)
    assert not Path(folder).exists()
