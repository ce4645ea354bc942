"""The package itself: each name is imported from its own module when it is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module

import pytest

import mqproto
from tests.conformance import ROOT


def homes() -> dict[str, str]:
    """Return the modules where type checkers find each name."""
    [block] = [
        node
        for node in ast.parse((ROOT / "mqproto" / "__init__.py").read_text("utf-8")).body
        if isinstance(node, ast.If)
    ]
    return {
        alias.name: statement.module or ""
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_a_name_is_where_type_checkers_look_for_it() -> None:
    assert sorted(homes()) == sorted(mqproto.__all__)
    for name, home in homes().items():
        assert getattr(mqproto, name) is getattr(import_module(home), name)
    assert {*mqproto.__all__} <= {*dir(mqproto)}


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'mqproto' has no attribute 'Sesion'"):
        mqproto.Sesion  # type: ignore[attr-defined]  # noqa: B018


def test_whoever_imports_the_wire_waits_neither_for_the_core_nor_for_the_generator() -> None:
    program = "import sys, mqproto.wire; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ours = [name for name in done.stdout.split() if name.startswith("mqproto")]
    assert [name for name in ours if not name.startswith(("mqproto.wire", "mqproto.base"))] == ["mqproto"]
    assert [name for name in ours if name.startswith("mqproto.wire.schema.generator")] == []
