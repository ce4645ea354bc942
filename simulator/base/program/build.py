"""Which build of mqproto runs: its source, or the wheel with compiled modules that setup.py makes."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

PURE: Final = "pure Python"
COMPILED: Final = "compiled"
SAFE_PATH: Final = "PYTHONSAFEPATH"


def build() -> str:
    """`compiled`, or `pure Python`."""
    # Here, as the command says what is not installed, and --help need not wait for the protocol.
    from mqproto.wire import glance

    return build_of(glance.__file__)


def build_of(file: str) -> str:
    """The same, by where a module came from that is compiled if any is."""
    return COMPILED if file.endswith(tuple(EXTENSION_SUFFIXES)) else PURE


def see_that_it_is_source(what: str) -> None:
    """Refuse what replaces methods of queue managers, as compiled classes let nobody do that.

    Raises:
        UsageError: they are compiled.
    """
    from mqproto.base.errors import UsageError

    if build() == COMPILED:
        raise UsageError(
            f"{what} replace methods, which a compiled mqproto lets nobody do: install it without MQPROTO_COMPILE"
        )


def keep_the_build(
    arguments: Sequence[str], path: Sequence[str], environment: MutableMapping[str, str]
) -> None:
    """See to it that the processes that we start are of the same build as we are.

    They are `python -m`, which looks into the working directory first. In a checkout they would be its source, while
    the command that an environment has, and that started them, is compiled.

    Args:
        arguments: `sys.argv`.
        path: `sys.path`; of a script the first is the folder that the script is in.
        environment: what those processes are given.
    """
    script, first = arguments[0], path[0]
    if os.path.dirname(os.path.realpath(script)) == os.path.realpath(first):
        environment.setdefault(SAFE_PATH, "1")


def python_and_build() -> str:
    """For those who report a fault: which build, by which Python."""
    return f"{build()}, Python {'.'.join(map(str, sys.version_info[:3]))}"
