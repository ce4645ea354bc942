"""An engine that counts tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mqproto.captures.pipeline.engines.localengine import LocalEngine


class CountingEngine(LocalEngine):
    """Counts the tasks of each stage."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def carry_out(self, stage: str, function: Any, tasks: Any, reads: Any = (), **how: Any) -> Any:
        if tasks:
            self.counts[stage] += len(tasks)
        return super().carry_out(stage, function, tasks, reads, **how)
