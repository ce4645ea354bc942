"""What every test of the simulator gets: output as in a pipe, however the tests are run."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_width_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some runners of tests set COLUMNS, which would fold our lines."""
    monkeypatch.delenv("COLUMNS", raising=False)
