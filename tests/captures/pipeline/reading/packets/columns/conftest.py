"""Makes tests read their small tables in the same way as large ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqproto.captures.pipeline.reading.packets.columns import table


@pytest.fixture(autouse=True, scope="module")
def read_all_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "FEW", 0)
        yield
