"""Options that several commands share."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cached_property, partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_origin

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program import settings
from mqproto.simulator.base.program.declared import as_typed, value
from mqproto.simulator.base.program.environment import DEFAULT_TOPOLOGY, DIRECTORY_VARIABLE, TOPOLOGY_VARIABLE
from mqproto.simulator.base.program.output import DONE, FINDING, Printout, Program, complain
from mqproto.simulator.base.program.settings import REHEARSAL, Rehearsal

if TYPE_CHECKING:
    from mqproto.simulator.topology.places import Place

    Later = Callable[[], Place]

SHARED: Final = "options of mqproto itself"
"""The help panel of options that may also be given before the name of the command that takes them."""

TopologyOption = Annotated[
    str,
    "The name of a shipped topology, a .toml file, or the name of a single node.",
    "-t",
    value(envvar=TOPOLOGY_VARIABLE, rich_help_panel=SHARED),
]
DirectoryOption = Annotated[
    Path | None,
    "The folder for the stores; by default, each topology has its own.",
    "-d",
    value(envvar=DIRECTORY_VARIABLE, rich_help_panel=SHARED),
]
NodeOption = Annotated[str | None, "The node to talk to.", "-n"]
WaypointsOption = Annotated[bool, "Log each step of each message, for mqproto history."]


def _configured(context: typer.Context, value: str) -> str:
    """Take missing options from the settings file.

    On SIGHUP, restart, provided that the program can start with what the file contains by then.
    """
    if value and not context.resilient_parsing:
        from mqproto.simulator.base.program.again import AGAIN

        def check() -> None:
            try:
                REHEARSAL.set(Rehearsal.RELOAD)  # For this thread alone.
                context.find_root().command.main(sys.argv[1:], standalone_mode=False)
            except typer.TyperException as misuse:
                raise UsageError(settings.plainly(misuse.format_message())) from None

        context.default_map = settings.read(settings.Chosen.of(value), context.command, context)
        if REHEARSAL.get() is Rehearsal.NONE:
            AGAIN.heed(check, complain)
    return value


ConfigOption = Annotated[
    str,
    "A TOML settings file whose keys are these option names; options on the command line take precedence. "
    "SIGHUP makes the program read it again.",
    value("FILE[#NAME]", callback=_configured, is_eager=True),
]
JsonOption = Annotated[bool, "Print JSON, for programs.", "--json", value(rich_help_panel=SHARED)]

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


def place_of(topology: str, directory: Path | None) -> Place:
    """Return the place that the two options stand for: a topology, and the folder of its nodes' stores."""
    from mqproto.simulator.topology.places import Place

    try:
        return Place.of(topology, directory)
    except UsageError:
        if REHEARSAL.get() is not Rehearsal.FILE or topology.endswith(".toml"):
            raise
    from mqproto.simulator.topology.alone import node_alone

    return Place(*node_alone(topology, directory, makes=False))


class Commands(typer.Typer):
    """A group of commands with grouped options.

    Without a command, it shows its help or runs its first command.

    A parameter of type Place becomes the options --topology and --directory. So does a parameter of type Later, for
    commands that do not always need the place. If the type of a parameter is a dataclass, each Annotated field of the
    dataclass becomes an option.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(no_args_is_help=options.get("cls") is not FirstByDefault, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Command], Command]:
        """Register a command, as `Typer.command` does."""

        def add(function: Command) -> Command:
            typer.Typer.command(self, name, cls=_Sharing, **options)(_Unfolded(function))
            return function

        return add

    def callback(self, **options: Any) -> Callable[[Command], Command]:
        """Register a callback, as `Typer.callback` does."""

        def add(function: Command) -> Command:
            typer.Typer.callback(self, **options)(_Unfolded(function))
            return function

        return add


class _Sharing(TyperCommand):
    """A command that keeps its own options apart from the options of `mqproto` itself."""

    def __init__(self, name: str | None, *, params: list[Any], **more: Any) -> None:
        self.shared = [each for each in params if each.rich_help_panel == SHARED]
        for each in self.shared:
            each.__class__ = _Shared
        super().__init__(name, params=[each for each in params if each not in self.shared], **more)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own parameters, the shared ones, and --help."""
        *own, last = super().get_params(ctx)
        return [*own, *self.shared, last]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command's name first, so that those after it take precedence."""
        above, mine = ctx.find_root(), {each.opts[0] for each in self.shared}
        for each in above.command.params if above is not ctx else ():
            if getattr(above.get_parameter_source(each.name), "name", "") == "COMMANDLINE":
                if (name := each.opts[0]) not in mine:
                    ctx.fail(f"{name} may not stand before {self.name}")
                args = [name if each.is_flag else f"{name}={above.params[each.name]}", *args]
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write one line that refers to `mqproto --help`, in place of the help for shared options."""
        if self.shared:
            formatter.write_paragraph()
            names = ", ".join("/".join(reversed(each.opts)) for each in self.shared)
            formatter.write_text(f"Also, here or before the command: {names}; see mqproto --help")


class _Shared(TyperOption):
    """A command's option that also belongs to `mqproto` itself."""

    def get_help_record(self, ctx: Any) -> None:
        return None


class FirstByDefault(TyperGroup):
    """A group that runs its first command if the command line names none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        If they name no command and the first command can take them, put its name in front.
        """
        name, first = next(iter(self.commands.items()))
        takes_words = any(parameter.param_type_name == "argument" for parameter in first.params)
        if not args or (
            args[0] not in {*self.commands, *ctx.help_option_names}
            and (takes_words or args[0].startswith("-"))
        ):
            args = [name, *args]
        return super().parse_args(ctx, args)


class _Unfolded:
    """A command in the form that Typer takes. Its options are computed only if the user runs this command."""

    def __init__(self, command: Callable[..., Any]) -> None:
        update_wrapper(self, command, ("__module__", "__name__", "__doc__"))
        self.__annotations__: dict[str, Any] = {}  # Those of its signature are no texts any more.
        self._command = command

    def __call__(self, **typed: Any) -> Any:
        taken = {name: _taken(each, typed) for name, each in self._own.parameters.items()}
        try:
            found = self._command(**taken)
        except UsageError as error:
            # What the running nodes do not know may be in the file by now.
            from mqproto.simulator.topology.places import Place, run_anew

            lacks: str = getattr(error, "lacks", "")
            places = [each for each in taken.values() if isinstance(each, Place)]
            if anew := "".join(run_anew(each.topology, each.directory, lacks) for each in places):
                raise UsageError(f"{error}; start the nodes with {anew}") from None
            raise
        if isinstance(found, Program):
            return found.run() if REHEARSAL.get() is Rehearsal.NONE else found.check()
        return found.show(as_json=typed["as_json"]) if isinstance(found, Printout) else found

    @cached_property
    def _own(self) -> inspect.Signature:
        return inspect.signature(self._command, locals=PLACES, eval_str=True)

    @cached_property
    def __signature__(self) -> inspect.Signature:
        typed = [option for each in self._own.parameters.values() for option in _options(each)]
        if self._own.return_annotation is Printout:
            typed += _options(AS_JSON)
        # Where the nodes are is said last.
        return self._own.replace(parameters=sorted(typed, key=lambda option: option.name in WHERE))


@dataclass
class _Where:
    """The options from which a place is made."""

    topology: TopologyOption = DEFAULT_TOPOLOGY
    directory: DirectoryOption = None


@dataclass
class _Later(_Where):
    """The options from which a place is made, for a command that may not need it."""


AS_JSON: Final = inspect.Parameter(
    "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption
)
"""The option `--json` of every command that returns its output."""
WHERE: Final = ("topology", "directory")
PLACES: Final = {"Place": _Where, "Later": _Later}
"""The classes that replace Place and Later when annotations are evaluated.

So modules with commands need not import Place for their annotations.
"""


def _options(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the options that form one parameter of a command."""
    if is_dataclass(parameter.annotation):
        for each in _fields(parameter.annotation).values():
            yield from _options(each)
    else:
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=as_typed(parameter))


def _taken(parameter: inspect.Parameter, typed: dict[str, Any]) -> Any:
    """Return the value of a parameter, built from the values of its options."""
    kind = parameter.annotation
    if kind in (_Where, _Later):
        place = partial(place_of, typed["topology"], typed["directory"])
        return place if kind is _Later else place()
    if is_dataclass(parameter.annotation):
        return kind(**{name: _taken(each, typed) for name, each in _fields(kind).items()})
    return typed[parameter.name]


def _fields(kind: Any) -> dict[str, inspect.Parameter]:
    """Return those fields of a dataclass that are options."""
    every = inspect.signature(kind, locals=PLACES, eval_str=True).parameters
    return {
        name: each
        for name, each in every.items()
        if is_dataclass(each.annotation) or get_origin(each.annotation) is Annotated
    }


def only_node(place: Place) -> str:
    """Return the only node of a topology.

    Raises:
        UsageError: the topology has several nodes.
    """
    nodes = list(place.topology.nodes)
    if len(nodes) > 1:
        raise UsageError(f"{place.topology.name} has several nodes: name one of {', '.join(nodes)}")
    return nodes[0]


def answered(place: Place, found: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Return the exit status and any complaints: FINDING and one complaint if no node has answered.

    Args:
        found: the result of `mqproto.simulator.client.live.ask_all`.
    """
    from mqproto.simulator.client.live import none_answered

    if any(found.values()):
        return DONE, []
    return FINDING, [none_answered(place.topology.name, found, f"mqproto run{place.again}")]
