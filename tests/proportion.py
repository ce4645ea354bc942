"""Measures the size of the project: `python -m tests.proportion` prints it; `test_proportion.py` holds it to budgets.

A line of code is one that is not blank, a comment or a docstring; a string that is a statement by itself counts as a
docstring. Files that programs write (GENERATED) are not counted.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from tests.conformance import ROOT

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
PRODUCT: Final = ("mqproto", "simulator", "captures", "pyspark_mqproto", "docs")
GENERATED: Final = frozenset({"mqproto/wire/generated.py"})
"""Files that `make` writes."""
COMMENTS: Final = {
    ".py": ("#",),
    ".lua": ("--",),
    ".js": ("//", "/*", "*"),
    ".css": ("/*", "*"),
    ".c": ("//", "/*", "*"),
    ".j2": ("{#",),
}
"""The suffixes of files that contain code, and how a comment line begins in each kind of file."""
RULES: Final = {
    "C901": "functions that are more complex than 15",
    "PLR0913": "functions of more than 10 arguments",
    "PLW0108": "lambdas that only call a function",
    "PLW1509": "processes with a preexec_fn",
    "PLW2901": "loop variables that are set anew",
}
"""The rules of Ruff whose violations are counted, and what each rule forbids; pyproject.toml has the limits."""
LARGE: Final = 300
"""The number of lines of code above which a class counts as large."""
LONG: Final = 60
"""The number of lines of code above which a function counts as long."""


class File(NamedTuple):
    """The counts for a file with code: its path from the root, its lines, its classes, and its longest functions.

    lines: the number of lines of code.
    classes: the classes at the top of a Python module, each with its lines of code.
    functions: all functions of a Python module that exceed LONG, each with its lines of code.
    """

    path: str
    lines: int
    classes: tuple[tuple[str, int], ...] = ()
    functions: tuple[tuple[str, int], ...] = ()

    @property
    def is_product(self) -> bool:
        return not self.path.startswith("tests/")

    @property
    def folder(self) -> str:
        """The file's second-level folder, such as `tests/bench`; `tests/.` for a file directly in a first-level
        folder.
        """
        first, *between, _ = self.path.split("/")
        return f"{first}/{between[0] if between else '.'}"


@cache
def files() -> tuple[str, ...]:
    """Return the paths of all files that Git tracks, and of new files that Git does not ignore."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(sorted({name for name in names if name and (ROOT / name).is_file()}))


@cache
def measured() -> tuple[File, ...]:
    """Measure the files of the product and the tests, except for generated files."""
    paths = (PurePath(name) for name in files() if name not in GENERATED)
    return tuple(
        _measure(path.as_posix(), path.suffix)
        for path in paths
        if path.parts[0] in (*PRODUCT, "tests") and path.suffix in COMMENTS
    )


def _measure(path: str, kind: str) -> File:
    text = (ROOT / path).read_text("utf-8")
    if kind != ".py":
        return File(path, len(code_lines(text, kind)))
    body = (tree := ast.parse(text)).body
    lines = code_lines(text, kind, body)

    def size(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, int]:
        span = range(node.lineno, (node.end_lineno or 0) + 1)
        return node.name, sum(line in span for line in lines)

    classes = tuple(size(node) for node in body if isinstance(node, ast.ClassDef))
    functions = (size(node) for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
    return File(path, len(lines), classes, tuple(each for each in functions if each[1] > LONG))


def code_lines(text: str, kind: str, body: Iterable[ast.stmt] = ()) -> list[int]:
    """Return the line numbers of the code in `text`.

    kind: the suffix of the text's file.
    body: the statements of a Python module, which show where its docstrings are.
    """
    prose = set(docstring_lines(body))
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return [n for n, line in lines if n not in prose and line and not line.startswith(COMMENTS[kind])]


def docstring_lines(body: Iterable[ast.stmt]) -> Iterator[int]:
    """Yield the line numbers of all docstrings in these statements, and in the definitions among them."""
    for node in body:
        if isinstance(node, (ast.ClassDef, *FUNCTIONS)):
            yield from docstring_lines(node.body)
        elif isinstance(node, ast.Expr):
            match node.value:
                case ast.Constant(value=str()):
                    yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def code_by_folder() -> dict[str, int]:
    """Return the number of lines of code of each folder."""
    counts: Counter[str] = Counter()
    for file in measured():
        counts[file.folder] += file.lines
    return dict(sorted(counts.items()))


def totals() -> dict[str, int]:
    """Return the lines of code of the product, of the tests, and of both together.

    The sum is counted because moving code between product and tests saves nothing.
    """
    product = sum(file.lines for file in measured() if file.is_product)
    both = sum(file.lines for file in measured())
    return {"product": product, "tests": both - product, "both": both}


def large_classes() -> dict[str, int]:
    """Return the size, in lines of code, of each product class that is larger than LARGE, keyed by module and name."""
    return {
        f"{file.path}:{name}": lines
        for file in measured()
        for name, lines in file.classes
        if file.is_product and lines > LARGE
    }


def long_functions() -> dict[str, int]:
    """Return the size, in lines of code, of each product function that is longer than LONG, keyed by module and
    name.
    """
    found = (file for file in measured() if file.is_product)
    return {f"{file.path}:{name}": lines for file in found for name, lines in file.functions}


def names_used_again() -> dict[str, list[str]]:
    """Return the names of classes that occur in several modules of the product, with the paths of these modules."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in measured():
        for name, _ in file.classes if file.is_product else ():
            places[name].append(file.path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def objections() -> dict[str, list[str]]:
    """Return the places in product and tests that violate one of RULES, according to Ruff; they are keyed by rule."""
    command = [sys.executable, "-m", "ruff", "check", "--exit-zero", "--output-format=json"]
    done = subprocess.run(
        [*command, f"--select={','.join(RULES)}", "."], cwd=ROOT, check=True, capture_output=True, text=True
    )
    found: dict[str, list[str]] = {rule: [] for rule in RULES}
    for each in json.loads(done.stdout):
        name = PurePath(each["filename"]).relative_to(ROOT).as_posix()
        if name not in GENERATED:
            found[each["code"]].append(f"{name}:{each['location']['row']}: {each['message']}")
    return found


def options() -> dict[str, int]:
    """Return the number of options of each command, keyed by the words of the command.

    Options that many commands share are counted only for `mqproto` itself.
    """
    from typer.main import get_command

    from mqproto.simulator.cli.cli import app

    every = get_command(app)
    return {typed: options_of(each) for typed, each in (("mqproto", every), *commands(every, "mqproto"))}


def options_of(command: Any) -> int:
    """Return the number of options of a command, not counting `--help`."""
    return sum(each.param_type_name == "option" and each.name != "help" for each in command.params)


def commands(command: Any, typed: str) -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, with the words that call it on the command line."""
    if (below := getattr(command, "commands", None)) is None:
        yield typed, command
    else:
        for name, each in below.items():
            yield from commands(each, f"{typed} {name}")


def counts() -> dict[str, int]:
    """Return the counts that should stay low."""
    return {
        "options of all commands": sum(options().values()),
        "class names that occur in more than one module": len(names_used_again()),
        **{RULES[rule]: len(places) for rule, places in objections().items()},
    }


def words() -> dict[str, int]:
    """Return the number of words of each document; each folder of docs/ counts as one document."""
    counts: Counter[str] = Counter()
    for path in map(PurePath, files()):
        if path.suffix == ".md":
            name = str(path.parent) if path.parts[0] == "docs" else str(path)
            counts[name] += len((ROOT / path).read_text("utf-8").split())
    return dict(counts)


def main() -> None:
    """Print how large everything is."""
    for title, table in (
        ("lines of code", {**code_by_folder(), **totals()}),
        (f"lines of code of classes of more than {LARGE}", large_classes()),
        (f"lines of code of functions of more than {LONG}", long_functions()),
        ("modules that have a class of one name", {name: len(at) for name, at in names_used_again().items()}),
        ("options", options()),
        ("words", words()),
    ):
        print(f"\n{title}: {len(table)} entries, {sum(table.values()):,} together\n")
        for name, count in table.items():
            print(f"{count:8,} {name}")
    for rule, places in objections().items():
        print(f"\n{rule}: {len(places)} places\n", *places, sep="\n")


if __name__ == "__main__":
    main()
