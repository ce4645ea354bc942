"""A runner that counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from captures.pipeline.runner import LocalRunner


class CountingRunner(LocalRunner):
    """Counts the tasks of each stage."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, stage: str, function: Any, tasks: Any) -> Any:
        self.counts[stage] += len(tasks)
        return super().__call__(stage, function, tasks)
