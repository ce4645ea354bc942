"""The log of a node, and a log stream to which nothing can be written."""

from __future__ import annotations

import errno
import io
import json
import os
import select
import subprocess
import sys

from mqproto.simulator.base.log import node_log


class Stream(io.StringIO):
    """A stream on a disk that is full whenever a test says so."""

    is_full = False

    def write(self, text: str, /) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)

    def flush(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_lines_that_find_no_room_end_nobody_and_are_counted() -> None:
    stream = Stream()
    log = node_log(stream, "sender")
    stream.is_full = True
    for number in range(3):
        log.info("lost", number=number)
    stream.is_full = False
    log.info("written")
    log.info("again")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line.get("count")) for line in lines] == [
        ("lines-lost", 3),
        ("written", None),
        ("again", None),
    ]


def test_a_program_whose_last_lines_found_no_room_ends_with_its_own_status() -> None:
    lost = "import sys; from mqproto.simulator.base.log import node_log; node_log(sys.stderr, 'sender').info('lost')"
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", lost], env={}, stderr=full, check=False)
    assert done.returncode == 0


def test_a_line_that_a_full_pipe_does_not_take_is_counted() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with open(reader, "rb", buffering=0) as ours, open(writer, "w", encoding="utf-8") as theirs:
        log = node_log(theirs, "sender")
        while select.select([], [writer], [], 0)[1]:
            os.write(writer, bytes(4096))
        log.info("lost")
        while select.select([ours], [], [], 0)[0]:
            ours.read(65_536)
        log.info("written")
        lines = [json.loads(line) for line in ours.read(65_536).splitlines()]
    assert [(line["event"], line.get("count")) for line in lines] == [("lines-lost", 1), ("written", None)]
