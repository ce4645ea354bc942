"""A command's settings in a TOML file. They have the same names as the command's options.

    [node]                          # mqproto node --config FILE
    name = "shop"
    queue = ["orders:strangers"]    # an option that may be repeated is a list

    [trigger.billing]               # mqproto trigger --config FILE#billing
    topology = "shop"               # a positional argument has the name that the help shows
    queue = "orders"

The command line and the environment take precedence over the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from difflib import get_close_matches
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from mqproto.base.errors import MqprotoError, UsageError

CONFIG: Final = "config"


class Rehearsal(Enum):
    """Whether a command runs, or how thoroughly its settings are checked without running it."""

    NONE = auto()
    """The command runs."""
    RELOAD = auto()
    """Everything is checked that can be checked while the program runs."""
    FILE = auto()
    """Like RELOAD, but a standalone node that is named need not exist in the usual directory."""


REHEARSAL: Final = ContextVar("REHEARSAL", default=Rehearsal.NONE)
RENAMED: Final = {
    "mqproto analyse --packages": "conf spark.jars.packages=GROUP:NAME:VERSION",
    "mqproto console --at": "listen",
    "mqproto decode --after": "since",
    "mqproto decode --before": "until",
    "mqproto decode --unfold": "diagram --verbose",
    "mqproto fuzz parser --packets": "count",
    "mqproto fuzz peer --cases": "count",
    "mqproto gateway --free-port": "listen HOST:0",
    "mqproto simulate --first": "seed FIRST --seeds COUNT",
    "mqproto tables --keep": "vacuum HOURS",
    "mqproto tokens make --into": "tokens",
    "mqproto tokens revoke --from": "tokens",
    "mqproto trigger --no-error-queue": "error-queue none",
    "mqproto trigger --no-history": "history none",
}
"""The option to use in place of each option that has been renamed, keyed by command and old name."""


class Chosen(NamedTuple):
    """A settings file, and the name of one set of settings in it for a command.

    The name is empty if there is only one set.
    """

    path: Path
    name: str = ""

    @classmethod
    def of(cls, text: str) -> Chosen:
        """Split a FILE or a FILE#NAME from the command line."""
        path, _, name = text.partition("#")
        return cls(Path(path), name)

    def __str__(self) -> str:
        return f"{self.path}{'#' * bool(self.name)}{self.name}"


def read(chosen: Chosen, command: Any, context: Any) -> dict[str, Any]:
    """Return the settings of a command, by the parameters of its function.

    Args:
        command, context: those of typer.

    Raises:
        UsageError: the file cannot be read, or a setting is not valid.
    """
    table = _chosen(_document(chosen.path), chosen, command.name)
    return _settings(table, _where(chosen.path, command.name, chosen.name), command, context)


def _chosen(document: Mapping[str, Any], chosen: Chosen, kind: str) -> dict[str, Any]:
    tables = dict(_tables(document, kind, chosen.path))
    table = tables.get(chosen.name)
    if table is None:
        there = ", ".join(str(chosen._replace(name=name)) for name in tables if name)
        raise UsageError(
            f"{chosen.path} has several [{kind}]: name one of {there}"
            if there and not chosen.name
            else f"{chosen.path} has no [{kind}{'.' * bool(chosen.name)}{chosen.name}]"
            + (f"; there is {there}" if there else "")
        )
    return table


def topology_of(chosen: Chosen, kind: str) -> str:
    """Return the topology that a command's settings name; if they name none, return their node.

    Return an empty string if they name neither, or if the file cannot be read yet.

    Raises:
        UsageError: the file has no such settings.
    """
    try:
        document = _document(chosen.path)
    except UsageError:
        return ""
    table = _chosen(document, chosen, kind)
    named = table.get("topology", table.get("name", "") if kind == "node" else "")
    return named if isinstance(named, str) else ""


def check(path: Path, commands: Mapping[str, Any], context: Any) -> list[str]:
    """Check all settings in a file as their programs do. Return the file's tables, such as `node` or `trigger.billing`.

    Args:
        commands: the commands that take their settings from a file.

    Raises:
        UsageError: the file cannot be read, or a setting is missing or not valid.
    """
    document = _document(path)
    for kind in document:
        if kind not in commands:
            raise UsageError(f"{path}: nothing takes settings from [{kind}]{_perhaps(kind, commands)}")
    found = []
    REHEARSAL.set(Rehearsal.FILE)
    for kind in document:
        for name, table in _tables(document, kind, path):
            where, command = _where(path, kind, name), commands[kind]
            given = _settings(table, where, command, context)
            for key, parameter in _parameters(command, context):
                if parameter.required and parameter.name not in given:
                    raise UsageError(f"{where}: {key} is needed")
            try:
                with command.make_context(kind, [], default_map=given) as rehearsed:
                    command.invoke(rehearsed)
            except MqprotoError as error:
                raise UsageError(f"{where}: {error}") from None
            found.append(f"{kind}.{name}" if name else kind)
    if not found:
        raise UsageError(f"{path} has no settings: write [{']; or ['.join(commands)}]")
    return found


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


def _tables(document: Mapping[str, Any], kind: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each set of settings for one command, with its name (empty if there is only one set)."""
    table = document.get(kind)
    if table is None:
        return
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {kind} is not a table: write [{kind}]")
    named = {name: value for name, value in table.items() if isinstance(value, dict)}
    if named and len(named) < len(table):
        others = ", ".join(key for key in table if key not in named)
        raise UsageError(f"{path}: [{kind}] has both settings ({others}) and [{kind}.{next(iter(named))}]")
    yield from named.items() if named else [("", table)]


def _settings(table: Mapping[str, Any], where: str, command: Any, context: Any) -> dict[str, Any]:
    known = dict(_parameters(command, context))
    found = {}
    for key, value in table.items():
        parameter = known.get(key)
        if parameter is None:
            now = RENAMED.get(f"mqproto {command.name} --{key}")
            perhaps = f"; it is {now} now" if now else _perhaps(key, known)
            raise UsageError(f"{where} has {key!r}, and no such setting is known{perhaps}")
        try:
            found[parameter.name] = typed = _typed(parameter, value)
            parameter.process_value(context, typed)
        except (typer.TyperException, ValueError) as error:
            raise UsageError(f"{where}: {key} = {value!r}: {plainly(str(error))}") from None
    return found


def plainly(trouble: str) -> str:
    """Describe in plain words, and not in pydantic's, what is wrong with a value."""
    return trouble.replace("Value error, ", "").replace("Input should", "must").partition(", unable to")[0]


def _typed(parameter: Any, value: object) -> bool | str | list[str]:
    """Return a value as it would be given on the command line, so that the option itself can check it.

    Raises:
        ValueError: the value cannot be given on a command line.
    """
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ValueError("write true or false")
        return value
    if parameter.multiple:
        if not isinstance(value, list):
            raise ValueError("write a list, [...]")
        return [_text(each) for each in value]
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("write a text or a number")
    return str(value)


def _parameters(command: Any, context: Any) -> Iterator[tuple[str, Any]]:
    """Yield each setting of a command, with the name that it has in a file."""
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument":
            yield (parameter.metavar or parameter.name).strip("[].").lower(), parameter
            continue
        names = [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]
        if names and not parameter.hidden and names[0] not in (CONFIG, "help"):
            yield names[0], parameter


def _perhaps(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"


def _where(path: Path, kind: str, name: str) -> str:
    return f"{path}: [{kind}{'.' * bool(name)}{name}]"
