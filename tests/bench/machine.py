"""Facts that are needed to interpret figures: the machine, its Python, and how long its disk takes to flush."""

from __future__ import annotations

import os
import platform
import statistics
import sysconfig
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqproto.simulator.rig.proof import percentile
from mqproto.wire import encode_packet
from tests.bench import byhand
from tests.bench.codec import example

FLUSHES: Final = 200
FLUSH_BYTES: Final = 64 * 1_024
SOME_FLUSHES: Final = 20
READS: Final = 5_000
READ_ROUNDS: Final = 9
DATASYNC: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
"""The call that stores use: it flushes appended bytes, but not the file's times.

macOS has only `fsync`, which flushes both.
"""
MOUNTS: Final = Path("/proc/self/mounts")


def machine() -> dict[str, str]:
    """Describe this machine.

    This writes to the folder for temporary files, where the benchmarks' stores are.
    """
    folder = Path(tempfile.gettempdir()).resolve()
    taken_ms = flushes_ms(folder, FLUSHES)
    has_profile = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}, built "
        f"{'with' if has_profile else 'without'} a profile (PGO)",
        "speed": f"code by hand reads a message in {reading_us():.2f} µs",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}, {_cores()} cores, "
        f"a load of {os.getloadavg()[0]:.1f} before it began",
        "disk": f"{folder} on {filesystem_of(folder)}; a flush of {FLUSH_BYTES // 1_024} KiB takes "
        f"{percentile(taken_ms, 50):.2f} ms (median), {percentile(taken_ms, 99):.2f} ms (p99)",
    }


def reading_us() -> float:
    """Return the processor time that this Python takes to read a packet, in µs: a measure of its speed.

    The same version takes up to a quarter longer if it was compiled without the profile of a typical run (PGO).
    """
    packet = encode_packet(example())
    rounds = timeit.repeat(
        lambda: byhand.parse(packet), repeat=READ_ROUNDS, number=READS, timer=time.process_time
    )
    return 1e6 * statistics.median(rounds) / READS


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def filesystem_of(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the kind of the file system that a folder is on.  man 5 proc

    `tmpfs` is memory, where a flush does nothing.
    """
    unknown = "an unknown file system"
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return unknown
    kinds = {Path(fields[1]): fields[2] for fields in map(str.split, lines) if len(fields) > 2}
    return next((kinds[place] for place in (folder, *folder.parents) if place in kinds), unknown)


def flushes_ms(folder: Path, count: int) -> list[float]:
    """Return how long each of `count` flushes takes, after 64 KiB were appended to a file; sorted by size."""
    taken_ms = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(count):
            file.write(bytes(FLUSH_BYTES))
            file.flush()
            began_s = time.perf_counter()
            DATASYNC(file.fileno())
            taken_ms.append(1_000 * (time.perf_counter() - began_s))
    return sorted(taken_ms)


def flush_ms() -> float:
    """Return the median time of some flushes where the benchmarks' stores are: the disk's present speed."""
    return percentile(flushes_ms(Path(tempfile.gettempdir()), SOME_FLUSHES), 50)
