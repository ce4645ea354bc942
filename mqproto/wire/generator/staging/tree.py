"""The copy of the package that mypyc compiles: what stands in the source, and what is made of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mqproto.wire.generator import typed
from mqproto.wire.generator.staging.records import with_inits
from mqproto.wire.layouts.session import session_header
from mqproto.wire.packets import INTERNAL_PACKETS, user_message_packet

PACKAGE: Final = "mqproto"
OPTIONS: Final = """
[mypy]
follow_imports = silent
[mypy-construct.*]
follow_imports = skip
follow_imports_for_stubs = True
"""
"""Of mypy: what is not compiled is not judged, as it may set bits by their names. construct's stubs give an expression
the type of its value: so layouts read well, and to a compiler it is not true."""
HEADERS: Final = ("transaction", "properties", "trailing")
"""Which wire/codec.py has found."""


def codec() -> str:
    """The source of the functions by which packets are read."""
    functions = [
        typed.typed_reader(user_message_packet),
        typed.typed_checker(user_message_packet),
        typed.typed_reader(session_header),
        *(typed.typed_finder(user_message_packet, name) for name in HEADERS),
        *(typed.typed_reader(record) for record in INTERNAL_PACKETS.values()),
    ]
    return typed.module(functions)


def stage(modules: Iterable[str], root: Path, into: Path) -> list[str]:
    """Copy the package and prepare it.

    Args:
        modules: what is to be compiled, by its path from the root.
        into: a folder that is made anew.

    Returns:
        The files to compile, the codec among them.
    """
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(root / PACKAGE, into / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    files = [into / module for module in modules]
    for file in files:
        file.write_text(with_inits(file.read_text("utf-8")), "utf-8")
    made = into.joinpath(*typed.COMPILED.split(".")).with_suffix(".py")
    made.write_text(codec(), "utf-8")
    (into / "mypy.ini").write_text(OPTIONS, "utf-8")
    return [str(file) for file in (*files, made)]
