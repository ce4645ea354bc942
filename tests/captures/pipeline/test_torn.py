"""Readers of the tables while runs commit: each reader sees the tables as a single run left them."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mqproto.captures.pipeline.tables import delta, runs
from mqproto.captures.pipeline.tables.parts import Store
from tests.captures.pipeline import torn

COMMITS = 6
STEPS = (
    (Store, "write"),
    (Store, "remove"),
    (DeltaTable, "create"),
    (DeltaTable, "create_write_transaction"),
)
"""The functions with which a commit changes a file or a table."""


@pytest.mark.long
def test_of_all_reads_beside_a_writer_none_is_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each step of a commit, one reader opens the tables; it reads them when its next turn comes.

    The readers take turns, so some of the writer's steps come between a reader's opening and its reading. After five
    commits, each reader has opened the tables at each step.
    """
    known = {torn.digest(torn.state(run)): run for run in range(1, COMMITS + 1)}
    turns = itertools.cycle(torn.READERS)
    opened = deque[tuple[str, torn.Read]]()
    seen = defaultdict[tuple[str, int], list[int]](list)

    def look() -> None:
        if len(opened) == len(torn.READERS):
            name, read = opened.popleft()
            for place, digest in enumerate(read()):
                assert digest in known, f"{name} saw {digest}"
                seen[name, place].append(known[digest])
        name = next(turns)
        opened.append((name, torn.READERS[name](tmp_path)))

    def beside_a_reader(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **options: Any) -> Any:
            look()
            return step(*args, **options)

        return stepping

    # So a few commits have what otherwise comes after dozens.
    monkeypatch.setitem(delta.SETTINGS, "delta.checkpointInterval", "2")
    monkeypatch.setattr(runs, "PARTS", 3)
    torn.write(tmp_path, 1)
    with monkeypatch.context() as patched:
        for owner, name in STEPS:
            patched.setattr(owner, name, beside_a_reader(getattr(owner, name)))
        torn.write(tmp_path, COMMITS)
    for _ in range(2 * len(torn.READERS)):
        look()
    assert list((tmp_path / "hops" / delta.LOG).glob("*.checkpoint.parquet"))
    for states in seen.values():
        assert states == sorted(states)
        assert set(states) == set(known.values())


def test_all_files_that_lie_there_are_no_table(tmp_path: Path) -> None:
    """This shows that the test above would see a torn read."""
    known = {torn.digest(torn.state(run)) for run in range(4)}
    torn.write(tmp_path, 3)
    assert {digest in known for reader in torn.READERS.values() for digest in reader(tmp_path)()} == {True}
    assert {digest in known for digest in torn.by_files(tmp_path)} == {False}
