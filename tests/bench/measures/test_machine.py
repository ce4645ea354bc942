from __future__ import annotations

import platform
import re
import sqlite3
from pathlib import Path

import pytest

from tests.bench.measures import machine
from tests.bench.measures.machine import filesystem_of


def test_figures_come_with_the_machine_they_were_taken_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "FLUSHES", 2)
    facts = machine.machine()
    assert platform.python_version() in facts["python"]
    assert ", ".join(platform.python_build()) == facts["build"]
    assert re.fullmatch(r"code by hand reads a message in \d+\.\d\d µs", facts["speed"])
    assert facts["sqlite"] == sqlite3.sqlite_version
    assert int(facts["cores"]) > 0
    assert "ms (median)" in facts["fsync"]
    assert "ms (p99)" in facts["fdatasync"]


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/disk xfs rw 0 0\n")
    assert filesystem_of(Path("/home/somebody"), mounts) == "ext4"
    assert filesystem_of(Path("/tmp"), mounts) == "tmpfs"
    assert filesystem_of(Path("/tmp/disk/stores"), mounts) == "xfs"
    assert filesystem_of(Path("/tmp/disks"), mounts) == "tmpfs"
    assert filesystem_of(Path("/tmp"), tmp_path / "none") == "an unknown file system"


def test_of_a_build_that_is_told_which_may_make_it_faster() -> None:
    configured = (
        "'--prefix=/usr' '--enable-optimizations' '--with-lto=full' '--with-x=/usr/lib' 'CFLAGS=-g -O2'"
    )
    assert machine.configured_with(configured) == "--enable-optimizations --with-lto=full"
    assert machine.configured_with("") == "not told"
    flags = "-Wsign-compare -DNDEBUG -g -fwrapv -O3 -Wall -flto -march=native -fwrapv"
    assert machine.optimized_by(flags) == "-fwrapv -O3 -flto -march=native"
    assert machine.optimized_by("") == "not told"
