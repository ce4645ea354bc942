"""The options with which a further command finds the same nodes as the current command."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.simulator.base.program import environment


@pytest.mark.parametrize(
    ("topology", "directory", "said"),
    [
        ("three-node", None, ""),
        ("shop.toml", None, " --topology shop.toml"),
        ("three-node", Path("my stores"), " --directory 'my stores'"),
        ("my shop.toml", Path("stores"), " --topology 'my shop.toml' --directory stores"),
    ],
)
def test_what_is_not_the_usual_one_is_typed(
    topology: str, directory: Path | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(environment.TOPOLOGY_VARIABLE, raising=False)
    monkeypatch.delenv(environment.DIRECTORY_VARIABLE, raising=False)
    assert environment.typed_again(topology, directory) == said


def test_what_stands_in_the_environment_need_not_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.TOPOLOGY_VARIABLE, "shop.toml")
    monkeypatch.setenv(environment.DIRECTORY_VARIABLE, "stores")
    assert environment.typed_again("shop.toml", Path("stores")) == ""
    assert (
        environment.typed_again("other.toml", Path("others")) == " --topology other.toml --directory others"
    )
