"""Samples that several tests report on. They are analyzed only once."""

from __future__ import annotations

import pytest

from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.page import page
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import sample


@pytest.fixture(scope="session")
def gap_held(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables of nine messages over two hops. Three are lost once, and four wait after those."""
    return sample("gap-held", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def dead_letters(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables of ten messages over two hops, three of which expire."""
    return sample("dead-letters", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def gap_held_page(gap_held: Tables) -> str:
    """The page about the messages of `gap_held`."""
    return page(gather(gap_held))
