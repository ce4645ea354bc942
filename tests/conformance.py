"""Reads conformance.toml, and collects the citations of the specification in code and in tests.

A citation looks like `[MS-MQQB] 3.1.5.6`; further numbers may follow after a comma, "and" or "to". In `mqproto/`, a
section number that begins with 3.1 and has no document's name also counts as one of [MS-MQQB].
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
CONFORMANCE: Final = ROOT / "mqproto" / "conformance.toml"
STATUSES: Final = ("done", "partial", "left out", "later")

NUMBER: Final = r"\d+(?:\.\d+)+"
LISTED: Final = re.compile(rf"\[(MS-[A-Z]+)\]\s+({NUMBER}(?:(?:,\s+and|,|\s+and|\s+to)\s+{NUMBER})*)")
ALONE: Final = re.compile(rf"(?<![\w.]){NUMBER}(?!\w)")
CITATION: Final = re.compile(rf"\[MS-[A-Z]+\] {NUMBER}")


@dataclass(frozen=True, slots=True)
class Citation:
    """One mention of one section, such as `[MS-MQQB] 3.1.5.6`, and the place where it is."""

    section: str
    where: str


def load() -> dict[str, Any]:
    """Read conformance.toml: `sections`, each with a status, and `reading`, for places where the specification
    contradicts itself.
    """
    return tomllib.loads(CONFORMANCE.read_text("utf-8"))


def summary() -> str:
    """Return a line for the end of a test run that says how many sections have each status."""
    try:
        statuses = Counter(line["status"] for line in load()["sections"].values())
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        return f"conformance.toml cannot be counted: {error!r}"
    return "conformance.toml: " + ", ".join(f"{statuses[status]} {status}" for status in STATUSES)


def cited_in_text(text: str) -> Iterator[tuple[str, int]]:
    """Yield each section that the text of a module cites, with the number of its line."""

    def line_of(position: int) -> int:
        return text.count("\n", 0, position) + 1

    taken = []
    for mention in LISTED.finditer(text):
        taken.append(mention.span())
        for number in re.findall(NUMBER, mention[2]):
            yield f"[{mention[1]}] {number}", line_of(mention.start())
    for mention in ALONE.finditer(text):
        if mention[0].startswith("3.1.") and not any(start <= mention.start() < end for start, end in taken):
            yield f"[MS-MQQB] {mention[0]}", line_of(mention.start())


def cited_in_markers(text: str) -> Iterator[tuple[str, int]]:
    """Yield each argument of `pytest.mark.spec(...)` in a test module, with the number of its line; `?` if it is not a
    string.
    """
    if "mark.spec" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec":
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                constant = argument.value if isinstance(argument, ast.Constant) else None
                yield constant if isinstance(constant, str) else "?", node.lineno


@cache
def in_code() -> tuple[Citation, ...]:
    """Return every citation in mqproto/."""
    return tuple(
        Citation(section, f"{path.relative_to(ROOT)}:{line}")
        for path in sorted((ROOT / "mqproto").rglob("*.py"))
        for section, line in cited_in_text(path.read_text("utf-8"))
    )


@cache
def in_tests() -> tuple[Citation, ...]:
    """Return every section that a test claims to check."""
    return tuple(
        Citation(section, f"{path.relative_to(ROOT)}:{line}")
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for section, line in cited_in_markers(path.read_text("utf-8"))
    )


@cache
def names_of_tests() -> frozenset[str]:
    """Return the name of every test function, such as `tests/session/test_states.py::test_name`."""
    return frozenset(
        f"{path.relative_to(ROOT)}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    )
