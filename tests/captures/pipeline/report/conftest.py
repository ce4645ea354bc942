"""Samples that several tests report on, analysed once."""

from __future__ import annotations

import pytest

from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.page import page
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import sample


@pytest.fixture(scope="session")
def gap_held(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Nine messages over two hops; three are lost once, and four wait behind them."""
    return sample("gap-held", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def dead_letters(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Ten messages over two hops, of which three expire."""
    return sample("dead-letters", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def gap_held_page(gap_held: Tables) -> str:
    """The page about these messages."""
    return page(gather(gap_held))
