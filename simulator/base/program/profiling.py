"""Where the time of a program goes, function by function: `mqproto node --profile`, `bench chain --profile`.

    python -m pstats sender.prof    # then: sort tottime, stats 30, callers FUNCTION

The clock is that on the wall. What waits for others stands under the call that waits: `poll` of trio, a flush of the
store. Each call that is noted takes time, so a function that is called often seems dearer than it is: a profile says
where to look, and what a change has brought is measured without one.
"""

from __future__ import annotations

import cProfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqproto.base.errors import UsageError


@contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    """Note what the block calls, in this thread, and write it at its end; without a path, do nothing.

    Args:
        path: the file, for `pstats`; one that is there is replaced.

    Raises:
        UsageError: the file cannot be written. Said before the block runs.
    """
    if path is None:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): name another file") from None
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        profile.dump_stats(path)


def profile_of(folder: Path, name: str) -> Path:
    """The profile of one program among several."""
    return folder / f"{name}.prof"
