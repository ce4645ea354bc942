"""Three packages, one direction: simulator -> captures -> mqproto; mqproto does no input or output.

A fourth package, pyspark_mqproto, only has the name by which Spark finds the data source in captures. Within the
simulator, the direction is workshop -> house; the house's commands are above everything else in it.

Ruff checks the same for mqproto while you type. Here, every import of every module counts, wherever it is.

The same holds inside each folder: there are no import cycles among its modules and folders. Each folder has at most
sixteen entries. And imported packages must be installed: a module may use those of its package's own extra in
pyproject.toml. It may import packages of other extras only inside a function, so that the rest works without them.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conformance import ROOT

PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
BANNED: Final = {
    name: rule["msg"]
    for name, rule in PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"].items()
}


@dataclass(frozen=True, slots=True)
class Layer:
    """The modules that the modules of one folder may import.

    The standard library and modules of the same folder are allowed, too.
    """

    folder: str
    below: tuple[str, ...] = ()
    """The folders of ours that the layer may import."""
    extras: tuple[str, ...] = ()
    """The extras of pyproject.toml that are installed with the layer, in addition to mqproto's own dependencies."""
    banned: bool = False
    """Whether Ruff's list of banned modules applies to the layer."""


# The innermost folder comes first: a module belongs to the first layer that it lies in.
LAYERS: Final = (
    Layer("mqproto/security", below=("mqproto",), extras=("security",), banned=True),
    Layer("mqproto/testing", below=("mqproto",), extras=("strategies",), banned=True),
    Layer("mqproto", banned=True),
    Layer("pyspark_mqproto", below=("captures", "mqproto"), extras=("captures", "spark")),
    Layer("captures/pipeline", below=("captures", "mqproto"), extras=("captures", "spark")),
    Layer("captures/spark.py", below=("captures", "mqproto"), extras=("captures", "spark")),
    Layer("captures", below=("mqproto",), extras=("captures",)),
    Layer("simulator/world/node/keys.py", below=("mqproto",), extras=("command", "simulator", "security")),
    Layer("simulator/base/traces/sdk", below=("mqproto",), extras=("command", "simulator", "traces")),
    Layer("simulator/testing", below=("captures", "mqproto"), extras=("command", "simulator", "testing")),
    Layer("simulator", below=("captures", "mqproto"), extras=("command", "simulator")),
)
ROOMS: Final = ("console", "fuzz", "replay", "rig", "testing", "world")
WORKSHOP: Final = tuple(f"simulator/{room}/" for room in ROOMS)
"""The parts that break, watch and judge the house. The house is the rest of the simulator, and does not use them."""
COMMANDS: Final = ("simulator/cli/", "simulator/command/")
"""The folders with the commands of house and workshop; only the workshop may import them."""
BEFOREHAND: Final = {
    "simulator/cli/cli.py": "registers the commands of fuzz and console, which are beside them",
    "simulator/cli/service/command.py": "writes units, and knows the console's options for them",
    "simulator/cli/samples.py": "makes the sample captures of worlds, when a maintainer runs it",
    "simulator/cli/running.py": "is `mqproto run`, which plays links and kills by hand; no other command loads it",
}
"""The modules of commands that import the workshop as soon as they are loaded."""
READERS: Final = {
    "simulator/base/recorder.py": "writes the traffic of links as a capture",
    "simulator/base/tap.py": "records what a node sends and receives",
    "simulator/storage/care/export.py": "writes messages as the rows that the readers of captures write",
}
"""The modules of the house that use captures; the house's commands and the workshop may use captures as well."""
PACKAGES: Final = ("mqproto", "captures", "simulator", "pyspark_mqproto")
LINKED: Final = ("captures", "simulator")
"""Folders of the root that are imported as mqproto.captures and mqproto.simulator, through links in mqproto/. Here they
are called by their folders' names.
"""
OURS: Final = (*PACKAGES, "tests")
DISTRIBUTIONS_OF: Final = packages_distributions()
CRYPTOGRAPHY: Final = ("cryptography", "Crypto")
LATER_MODULES: Final = ("compression",)
"""Modules that the standard library has had only since a certain version of Python.

Before that version, a package in pyproject.toml is used.
"""
EVERY_EXTRA: Final = tuple(extra for extra in PYPROJECT["project"]["optional-dependencies"] if extra != "dev")


INNER: Final = ("body", "orelse", "handlers", "finalbody", "cases")
"""The attributes of a syntax node that contain statements, or nodes with statements."""


class Import(NamedTuple):
    """A module that another one imports, by its full name."""

    name: str
    line: int
    lazy: bool
    """Whether the import is inside a function, or under `if TYPE_CHECKING:`, where it is never executed."""


def layer_of(path: str) -> Layer | None:
    """Return the layer of a module, by its path from the root of the repository; None if it is not ours."""
    return next((layer for layer in LAYERS if f"{path}/".startswith(f"{layer.folder}/")), None)


def imports(path: str, source: str) -> Iterator[Import]:
    """Yield each module, or name in a module, that `source` imports."""
    module = f"mqproto/{path}" if path.partition("/")[0] in LINKED else path

    def search(node: ast.AST, lazy: bool) -> Iterator[Import]:
        """Search this statement and the statements in it; expressions contain no imports."""
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = module.split("/")[: -node.level] if node.level else []
            base = [*here, *([node.module] if node.module else [])]
            yield from (Import(".".join([*base, alias.name]), node.lineno, lazy) for alias in node.names)
        defers = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        for part in INNER:
            for child in getattr(node, part, ()):
                yield from search(child, lazy or defers)

    return search(ast.parse(source), lazy=False)


def in_tree(name: str) -> str:
    """Return a module's name according to its folder: `simulator.node` for mqproto.simulator.node."""
    above, _, below = name.partition(".")
    return below if above == "mqproto" and below.partition(".")[0] in LINKED else name


@cache
def imports_of(file: Path) -> tuple[Import, ...]:
    """Return the imports of a module of ours."""
    return tuple(imports(file.relative_to(ROOT).as_posix(), file.read_text("utf-8")))


@cache
def distributions(extras: tuple[str, ...]) -> frozenset[str]:
    """Return the distributions that mqproto names as dependencies when it has these extras.

    Every extra that has commands also installs the extra `command`. Its packages count only if `extras` has `command`,
    so layers with commands list `command`.
    """
    project = PYPROJECT["project"]
    known = project["optional-dependencies"]
    asked = [*project["dependencies"], *(line for extra in extras for line in known.get(extra, []))]
    names = set[str]()
    for requirement in map(Requirement, asked):
        if requirement.name == project["name"]:
            names |= distributions(tuple(requirement.extras - {"command"}))
        names.add(canonicalize_name(requirement.name))
    return frozenset(names)


def wrong_way(path: str, imported: Import) -> str | None:
    """Return why an import violates workshop -> house -> mqproto, with commands above both; None if it does not."""
    target = f"{in_tree(imported.name).replace('.', '/')}/"
    if not path.startswith("simulator/") or path.startswith(WORKSHOP):
        return None
    if path.startswith(COMMANDS):
        if target.startswith(WORKSHOP) and not imported.lazy and path not in BEFOREHAND:
            return "A command loads the workshop when it is typed: import it inside the function."
        return None
    if target.startswith(COMMANDS):
        return (
            "Only the workshop stands on commands: move what both need to simulator/client, or further down."
        )
    if target.startswith(WORKSHOP):
        return "The house does without the workshop: move what both need to where the house has it."
    if target.startswith("captures/") and path not in READERS:
        return "The house reads no captures: only its recorder and its export do, and its commands."
    return None


def fault(path: str, imported: Import) -> str | None:
    """Return why the module at `path` may not import a module, and what to do instead; None if it may."""
    layer = layer_of(path)
    assert layer is not None, f"{path} lies in no layer"
    if (top := imported.name.partition(".")[0]) in LINKED:
        return f"It is mqproto.{imported.name}: by another name the module would be there twice."
    name = in_tree(imported.name)
    top = name.partition(".")[0]
    installed = distributions(EVERY_EXTRA if imported.lazy and not layer.banned else layer.extras)
    if layer.banned and (message := BANNED.get(f"mqproto.{top}" if top in LINKED else top)):
        return str(message)
    if top in CRYPTOGRAPHY and layer.folder != "mqproto/security":
        return "Only mqproto/security imports cryptography: ask it, inside a function."
    if top in OURS:
        target = layer_of(name.replace(".", "/"))
        if target is None or target.folder.split("/")[0] not in (*layer.below, path.split("/")[0]):
            return "Arrows point one way: simulator -> captures -> mqproto. Move what both need downwards."
        if missing := sorted(distributions(target.extras) - installed):
            return f"{target.folder} needs {', '.join(missing)}: import it inside a function."
        return wrong_way(path, imported)
    # What is not installed here is known by its own name alone, or, in a namespace of several, by the names around it.
    unknown = [top, imported.name.rpartition(".")[0]]
    names = {canonicalize_name(name) for name in DISTRIBUTIONS_OF.get(top, unknown)}
    if top in (*sys.stdlib_module_names, *LATER_MODULES) or names & installed:
        return None
    if layer.banned:
        return f"{layer.folder} imports the standard library and its own extra's packages, nothing else."
    return f"pyproject.toml does not name it in the extra {layer.extras[-1]!r}, so users may be without it."


def test_no_import_points_the_wrong_way() -> None:
    faults = []
    for module in sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")):
        path = module.relative_to(ROOT).as_posix()
        for imported in imports_of(module):
            if reason := fault(path, imported):
                faults.append(f"{path}:{imported.line} imports {imported.name}. {reason}")
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("path", "source", "reason"),
    [
        ("mqproto/session/rules.py", "def f():\n    from trio import sleep", "sans-IO"),
        ("mqproto/session/rules.py", "import time", "Moment"),
        ("mqproto/session/rules.py", "if TYPE_CHECKING:\n    import mqproto.simulator.node.node", "one way"),
        ("mqproto/session/rules.py", "from ..captures import pcap", "one way"),
        ("simulator/node/node.py", "from simulator.base import settings", "twice"),
        ("simulator/node/node.py", "def f():\n    import captures", "twice"),
        ("mqproto/wire/schema/record.py", "import msgspec", "nothing else"),
        ("mqproto/wire/schema/record.py", "from mqproto.testing import packets", "needs hypothesis"),
        ("mqproto/testing/packets.py", "import random", "argument"),
        ("mqproto/security/keys.py", "import time", "Moment"),
        (
            "mqproto/manager/arrivals.py",
            "def f():\n    from mqproto.security import keys",
            "needs cryptography",
        ),
        ("simulator/node/node.py", "def f():\n    import cryptography", "Only mqproto/security"),
        ("captures/files/pcap.py", "import mqproto.simulator", "one way"),
        ("captures/files/pcap.py", "from ...simulator import node", "one way"),
        ("captures/files/pcap.py", "import trio", "extra 'captures'"),
        ("captures/files/pcap.py", "import typer", "extra 'captures'"),
        ("captures/files/pcap.py", "import no_such_module", "extra 'captures'"),
        ("captures/files/pcap.py", "from tests.examples import FRAME", "one way"),
        ("simulator/node/node.py", "from mqproto.testing.packets import any_packet", "needs hypothesis"),
        ("simulator/node/node.py", "import pytest", "extra 'simulator'"),
        ("simulator/node/node.py", "def f():\n    import mypy", "extra 'simulator'"),
        ("mqproto/wire/schema/record.py", "def f():\n    from mqproto import testing", "needs hypothesis"),
        ("simulator/edges/trail.py", "def f():\n    import mqproto.simulator.command", "on commands"),
        ("simulator/client/talk.py", "import mqproto.simulator.cli.cli", "stands on commands"),
        ("simulator/edges/trail.py", "def f():\n    import mqproto.simulator.rig", "without the workshop"),
        ("simulator/command/edges.py", "from mqproto.simulator.console import front", "when it is typed"),
        ("simulator/node/node.py", "import mqproto.captures.files.pcap", "reads no captures"),
    ],
)
def test_a_wrong_import_is_found_and_explained(path: str, source: str, reason: str) -> None:
    [imported] = imports(path, source)
    assert reason in (fault(path, imported) or "let through")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("mqproto/wire/schema/record.py", "import struct, construct.core, mqproto.base.errors"),
        ("mqproto/session/rules.py", "from . import states\nfrom ..wire import guid"),
        ("mqproto/testing/packets.py", "import hypothesis.strategies\nfrom mqproto.wire import guid"),
        ("mqproto/security/keys.py", "import cryptography, Crypto.Cipher\nfrom mqproto.wire import guid"),
        ("simulator/command/keys.py", "def f():\n    from mqproto.security import keys"),
        ("captures/files/pcap.py", "import socket, time\nfrom mqproto.wire import guid"),
        (
            "simulator/base/tap.py",
            "import trio, sqlite3, mqproto.captures.files.pcap, mqproto.base.moment\nfrom . import storage",
        ),
        ("simulator/fuzz/a.py", "import mqproto.simulator.command.options, mqproto.captures.files.pcap"),
        ("simulator/command/edges.py", "def f():\n    from mqproto.simulator.console import front"),
        ("simulator/command/show.py", "import mqproto.captures.files.pcap"),
        ("simulator/fuzz.py", "def f():\n    from mqproto.testing.packets import any_packet"),
        ("simulator/fuzz.py", "if TYPE_CHECKING:\n    from mqproto.testing.packets import any_packet"),
    ],
)
def test_a_right_import_is_let_through(path: str, source: str) -> None:
    found = list(imports(path, source))
    assert found
    assert [fault(path, imported) for imported in found] == [None] * len(found)


ROOM: Final = 16
"""The largest number of modules and folders in one folder, so that a reader sees them at a glance."""


@cache
def modules() -> dict[str, tuple[str, ...]]:
    """Return the name of each module of the packages, with the names of the modules that it imports."""
    paths = [path.relative_to(ROOT) for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    known = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    found = {}
    for name, path in sorted(known.items()):
        targets = [in_tree(one.name) for one in imports_of(ROOT / path)]
        # `from package import name` imports a module of the package, or a name of its __init__.
        found[name] = tuple(
            {
                target if target in known else target.rpartition(".")[0]
                for target in targets
                if target in known or target.rpartition(".")[0] in known
            }
            - {name}
        )
    return found


def circle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """Return one import cycle, if there is one; otherwise, an empty list."""
    done: set[str] = set()

    def follow(path: list[str]) -> list[str]:
        for target in sorted(arrows.get(path[-1], ())):
            if target in path:
                return [*path[path.index(target) :], target]
            if target not in done and (found := follow([*path, target])):
                return found
        done.add(path[-1])
        return []

    return next((found for start in sorted(arrows) if start not in done and (found := follow([start]))), [])


def among(folder: str, arrows: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Return the imports between the entries of one folder; `__init__` is an entry as well."""

    def entry(name: str) -> str | None:
        if name == folder:
            return "__init__"
        return name[len(folder) + 1 :].partition(".")[0] if name.startswith(f"{folder}.") else None

    found: dict[str, set[str]] = {}
    for name, targets in arrows.items():
        here = entry(name)
        there = {one for target in targets if (one := entry(target)) is not None and one != here}
        if here is not None:
            found.setdefault(here, set()).update(there)
    return found


FOLDERS: Final = sorted(
    ".".join(path.relative_to(ROOT).parent.parts)
    for folder in PACKAGES
    for path in (ROOT / folder).rglob("__init__.py")
)


def test_no_imports_lead_in_a_circle() -> None:
    """This includes imports in functions and under `if TYPE_CHECKING:`.

    In an import cycle, there would be no module that can be read first.
    """
    found = circle(modules())
    assert not found, f"{' -> '.join(found)}: move what both need into a module below them"


@pytest.mark.parametrize("folder", FOLDERS)
def test_among_the_entries_of_a_folder_imports_lead_in_no_circle(folder: str) -> None:
    found = circle(among(folder, modules()))
    assert not found, f"in {folder}: {' -> '.join(found)}: which of them is the lower one?"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_no_more_entries_than_one_sees_at_a_glance(folder: str) -> None:
    path = folder.replace(".", "/")
    entries = {
        name[len(folder) + 1 :].partition(".")[0] for name in modules() if name.startswith(f"{folder}.")
    }
    assert len(entries) <= ROOM, f"{path} has {len(entries)} entries: {', '.join(sorted(entries))}"


def test_a_circle_is_found_where_there_is_one() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert circle({"a": ["b", "c"], "b": ["c"]}) == []
    assert among("p", {"p.a.x": ["p.b.y"], "p.b.z": ["p.a.w"], "p": ["p.a.x"]}) == {
        "a": {"b"},
        "b": {"a"},
        "__init__": {"a"},
    }


MOST_NAMES: Final = 8
"""How many names an object may use of the one that has built it."""
KNOW_MORE: Final = {
    # Its requests are of eight kinds, and each asks the service for something else.
    "simulator.node.service.ClientConnection": 18,
}
"""The classes whose objects use more names of their builder, and how many. No class may be added."""


def names_of_builders(sources: Mapping[str, str]) -> dict[str, int]:
    """Return each class whose objects are given the whole object that builds them, as `Part(self)` does.

    The number says how many names of that object they use: with many, a class is no part, but more of the same.

    sources: modules, keyed by their paths.
    """
    trees = {path.removesuffix(".py").replace("/", "."): ast.parse(text) for path, text in sources.items()}
    nodes = {f"{module}.{getattr(node, 'name', '')}": node for module in trees for node in trees[module].body}
    classes = {name: node for name, node in nodes.items() if isinstance(node, ast.ClassDef)}
    found = {}
    for (path, text), (module, tree) in zip(sources.items(), trees.items(), strict=True):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            given = [isinstance(value, ast.Name) and value.id == "self" for value in call.args]
            if any(given):
                there = {in_tree(one.name) for one in imports(path, text)} | {
                    f"{module}.{ast.unparse(call.func)}"
                }
                for name in there & classes.keys():
                    if name.endswith(f".{ast.unparse(call.func)}"):
                        found[name] = len(names_used(classes[name], given.index(True)))
    return found


def names_used(built: ast.ClassDef, place: int) -> set[str]:
    """Return the attributes that a class uses of an argument of its objects, also under other names."""
    making = [
        each.args for each in built.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
    fields = [ast.unparse(node.target) for node in built.body if isinstance(node, ast.AnnAssign)]
    parameter = [argument.arg for argument in making[0].args[1:]][place] if making else fields[place]
    aliases = {parameter, f"self.{parameter}", f"self._{parameter}"}
    for node in ast.walk(built):
        match node:
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) | ast.Assign(names, values):
                pairs = zip(names, values if isinstance(values, list) else [values], strict=False)
                aliases |= {ast.unparse(name) for name, value in pairs if ast.unparse(value) in aliases}
    nodes = (node for node in ast.walk(built) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if ast.unparse(node.value) in aliases}


def test_no_part_uses_more_than_a_few_names_of_the_object_that_builds_it() -> None:
    paths = (path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))
    sources = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}
    found = names_of_builders(sources)
    assert {name: count for name, count in found.items() if count > MOST_NAMES} == KNOW_MORE


def test_ruff_bans_for_mqproto_what_waits_or_rolls_dice() -> None:
    assert {"trio", "socket", "time", "random", "sqlite3", "mqproto.captures", "mqproto.simulator"} <= set(
        BANNED
    )
    lifted = PYPROJECT["tool"]["ruff"]["lint"]["per-file-ignores"]
    assert not any(re.match("mqproto", pattern) for pattern, rules in lifted.items() if "TID251" in rules)


def test_the_lock_pins_every_dependency_that_pyproject_names() -> None:
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    pins = [Requirement(line.split(" #")[0]) for line in lines if line[:1].isalnum()]
    versions = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    extras = PYPROJECT["project"]["optional-dependencies"]
    asked = [
        Requirement(line)
        for group in (
            PYPROJECT["build-system"]["requires"],
            PYPROJECT["project"]["dependencies"],
            *extras.values(),
        )
        for line in group
    ]
    unmet = [
        str(requirement)
        for requirement in asked
        if requirement.name != PYPROJECT["project"]["name"]
        and not requirement.specifier.contains(versions.get(canonicalize_name(requirement.name), "0"), True)
    ]
    assert not unmet, f"requirements.lock has no release for {unmet}: run `make lock`"
    assert all(len(pin.specifier) == 1 and str(pin.specifier).startswith("==") for pin in pins)
    assert not any("://" in line or line.startswith("-") for line in lines), "the lock names no host"
