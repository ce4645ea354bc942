"""Loads the function that the command line names as `module:function`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from mqproto.base.errors import UsageError


def find(name: str, usage: str) -> Any:
    """Return the object with this name. Modules are also looked for in the working folder.

    Args:
        usage: the correct form of the option, for the error.

    Raises:
        UsageError: there is no such object.
    """
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise UsageError(f"{name!r}: {usage}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = importlib.import_module(module)
        for step in path.split("."):
            value = getattr(value, step)
    except Exception as error:  # Somebody else's module may fail in any way.
        raise UsageError(f"{name!r} is not available: {type(error).__name__}: {error}") from None
    return value


def function(name: str, usage: str) -> Callable[..., Any]:
    """Return the function with this name.

    Raises:
        UsageError: there is no such function.
    """
    value = find(name, usage)
    if not callable(value):
        raise UsageError(f"{name!r} is {type(value).__name__}, and cannot be called")
    found: Callable[..., Any] = value
    return found
