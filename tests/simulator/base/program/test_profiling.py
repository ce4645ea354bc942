from __future__ import annotations

import pstats
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from simulator.base.program.profiling import profiled


def work(*, fails: bool = False) -> None:
    if fails:
        raise RuntimeError


def called(path: Path) -> set[str]:
    """The functions that a profile names."""
    return {name for _, _, name in pstats.Stats(str(path)).stats}  # type: ignore[attr-defined]


def test_a_profile_names_what_the_block_called(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a.prof"
    with profiled(path):
        work()
    assert "work" in called(path)


def test_a_profile_is_written_though_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.prof"
    with pytest.raises(RuntimeError), profiled(path):
        work(fails=True)
    assert "work" in called(path)


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "file" / "a.prof"
    path.parent.write_text("a file and no folder")
    ran = False
    with pytest.raises(UsageError, match="name another file"), profiled(path):
        ran = True
    assert not ran
