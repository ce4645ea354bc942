"""Options that are each declared in one line.

An example is `count: Annotated[int, "At most this many.", "-c", value(min=1)] = 5`. The long name of an option is that
of the field, without the unit `_s`, unless the line gives another name. A switch that is on by default has a
counterpart that begins with `--no-`. typer's signature, the TOML of --config, `config check` and completion are made
from these lines.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, get_args, get_type_hints

import typer

from mqproto.base.errors import UsageError

ARGUMENT: Final = object()
"""Marks a declaration as that of an argument, which is given without a name on the command line."""
NAME: Final = re.compile(r"-\w|--\w\S*")


def value(unit: str | None = None, **more: Any) -> dict[str, Any]:
    """Describe a value: its unit, its bounds (min, max), and whatever else typer.Option accepts."""
    return more if unit is None else {"metavar": unit, **more}


def as_typed(parameter: inspect.Parameter) -> Any:
    """Return the annotation of a declaration in the form that typer expects."""
    kind, *said = get_args(parameter.annotation) or [parameter.annotation]
    texts = [each for each in said if isinstance(each, str)]
    more = _of_value(said)
    if not texts and not more and ARGUMENT not in said:
        return parameter.annotation
    names = list(filter(NAME.fullmatch, texts))
    more["help"] = next((each for each in texts if each not in names), None)
    if any(parameter.default is nothing for nothing in (None, "", False, parameter.empty)):
        more["show_default"] = False
    if ARGUMENT in said:
        return Annotated[kind, typer.Argument(**more)]
    if not any(name.startswith("--") for name in names):
        long = parameter.name.strip("_").removesuffix("_s").replace("_", "-")
        switches = bool in (kind, *get_args(kind)) and parameter.default is not False
        names.insert(0, f"--{long}/--no-{long}" if switches else f"--{long}")
    return Annotated[kind, typer.Option(*names, **more)]


def _of_value(said: Iterable[object]) -> dict[str, Any]:
    """Return what `value` returned for a declaration, out of all its metadata."""
    return {key: each for one in said if isinstance(one, dict) for key, each in one.items()}


def hold_bounds(declared: object) -> None:
    """Refuse a dataclass with values that are outside the bounds which its fields declare.

    Raises:
        UsageError: a value is out of bounds.
    """
    for name, hint in get_type_hints(type(declared), include_extras=True).items():
        given, bounds = getattr(declared, name), _of_value(get_args(hint))
        if isinstance(given, int | float) and {"min", "max"} & bounds.keys():
            least, most = bounds.get("min", given), bounds.get("max", given)
            if not least <= given <= most:
                raise UsageError(f"{name.removesuffix('_s')} {given:g}: must be {least:,} to {most:,}")
