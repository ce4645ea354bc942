"""The first screen of the README keeps in step with what it speaks of."""

from __future__ import annotations

import pytest

from tests import conformance

PAGE = (conformance.ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("folder", ["mqproto", "captures", "pyspark_mqproto", "simulator", "tests"])
def test_each_folder_has_its_line(folder: str) -> None:
    assert (conformance.ROOT / folder).is_dir()
    assert f"| `{folder}/` |" in PAGE


def test_the_last_word_is_what_changed() -> None:
    headings = [line for line in PAGE.splitlines() if line.startswith("## ")]
    assert headings[-1] == "## Changes"
