"""Plants random one-line faults, and reports whether worlds and tests notice them: `make mutants`.

First it measures which worlds and tests execute each line (`reach.py`); this takes about twenty minutes. Then it puts
each fault into a copy of the checkout, and runs the worlds and tests that execute the changed line until one of them
notices. It lists the faults that survive: either nothing checks for them, or they are harmless. Those that are known to
be harmless are in `harmless.py`. Each run draws its faults from a seed, and prints that seed; `--seed` repeats the run.

`--again FILE` retries the faults that survived in an earlier run whose output is in FILE.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import cache_from_source
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from tests.conformance import ROOT
from tests.harmless import EXPLAINED
from tests.reach import Reach, kept, measured, statement_around

ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "core": (
        *(
            "mqproto/base",
            "mqproto/routing",
            "mqproto/edge",
            "mqproto/turn",
            "mqproto/session",
            "mqproto/messages",
            "mqproto/queues",
        ),
        *("mqproto/transfer", "mqproto/neighbours", "mqproto/manager"),
    ),
    "shell": ("simulator/node",),
    "store": ("simulator/storage",),
}
"""The folders whose files get faults, in three groups."""
OTHERS: Final = frozenset({"mqproto/turn/waypoints.py", "simulator/storage/disk.py"})
"""Files without planted faults: notes for people, and the rules by which worlds check the store."""
TESTS: Final = (
    *(
        "tests/queues/rules",
        "tests/turn",
        "tests/queues",
        "tests/transfer",
        "tests/session",
        "tests/messages",
    ),
    *(
        "tests/base",
        "tests/routing",
        "tests/edge",
        "tests/neighbours",
        "tests/manager",
        "tests/test_seeds.py",
        "tests/test_spec_frames.py",
    ),
    *("tests/simulator/storage", "tests/simulator/node", "tests/simulator/client", "tests/simulator/world"),
    "tests/simulator/rig",
)
LIMIT_S: Final = 300
SLOWER: Final = 5
"""A run counts as an endless loop if it takes longer than SLOWER times its usual time, plus LIMIT_S."""
TEST_S: Final = 120
"""The time limit for one test, in seconds."""
WORLD_S: Final = 0.2
"""The approximate time that a world takes, in seconds."""

WORLDS: Final = """
import sys
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.world import draw, simulate
with seldom_collected():
    for seed in map(int, sys.argv[1].split()):
        breach = simulate(draw(seed)).breach
        if breach is not None:
            sys.exit(f"seed {seed}: {breach.invariant}")
"""
REACH: Final = ROOT / "build" / "mutants" / "reach.json"
"""The file in which a run keeps its measurements."""


class Fault(NamedTuple):
    """A change to one line.

    place: the function that contains the line.
    """

    room: str
    path: str
    line: int
    place: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.place}: {self.old.strip()}  ->  {self.new.strip()}"


NOT_LOOKED_AT: Final = "no world executes it"
BROKEN: Final = re.compile(r"FAILED|ERROR|seed \d+: ")
"""Matches what tests and worlds print when they fail."""
SURVIVES: Final = "SURVIVES"


class Found(NamedTuple):
    """The outcome of a fault: the world and the test that noticed it; each is empty if none did."""

    fault: Fault
    worlds: str
    tests: str


OTHER_OPERATORS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


def changes(node: ast.AST, *, making: bool) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the changes that may break a node of the syntax tree: the replaced node, and the new text.

    making: whether this is an `__init__`, where leaving something out would only cause an AttributeError.
    """
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = OTHER_OPERATORS.get(type(node.ops[0]))
        if other is not None:
            changed = ast.Compare(node.left, [other()], node.comparators)  # type: ignore[list-item]
            yield node, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.BoolOp):
        yield node, f"({ast.unparse(ast.BoolOp(OTHER_OPERATORS[type(node.op)](), node.values))})"  # type: ignore[arg-type]
    elif isinstance(node, ast.BinOp) and type(node.op) in OTHER_OPERATORS:
        text = ast.unparse(ast.BinOp(node.left, OTHER_OPERATORS[type(node.op)](), node.right))  # type: ignore[arg-type]
        yield node, f"({text})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield node, str(node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        yield node.func, "max" if node.func.id == "min" else "min"
    elif (
        isinstance(node, ast.AugAssign)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await))
        or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and not making)
    ):
        yield node, "pass"


def faults_of(room: str, path: str, source: str) -> Iterator[Fault]:
    """Yield all faults that can be made in one module; annotations, assertions and raised errors stay unchanged."""
    lines = source.splitlines()

    def within(node: ast.AST, place: str) -> Iterator[Fault]:
        if isinstance(node, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            place = f"{place}.{node.name}".lstrip(".")
        inside = place.rpartition(".")[2]
        if (
            inside
            and not inside[0].isupper()
            and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ):
            for what, text in changes(node, making=inside == "__init__"):
                if what.lineno == what.end_lineno:
                    # Columns are counted in bytes of UTF-8.
                    line = lines[what.lineno - 1].encode()
                    new = line[: what.col_offset] + text.encode() + line[what.end_col_offset :]
                    yield Fault(room, path, what.lineno, place, line.decode(), new.decode())
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.arguments):
                    yield from within(child, place)

    yield from within(ast.parse(source), "")


@cache
def all_faults() -> dict[str, list[Fault]]:
    """Return all faults that can be made, keyed by group of folders."""
    found: dict[str, list[Fault]] = {}
    for room, folders in ROOMS.items():
        for folder in folders:
            for path in sorted((ROOT / folder).rglob("*.py")):
                name = path.relative_to(ROOT).as_posix()
                if name not in OTHERS:
                    found.setdefault(room, []).extend(faults_of(room, name, path.read_text("utf-8")))
    return found


def drawn(count: int, dice: random.Random) -> list[Fault]:
    """Return `count` different faults: half of them in the core, a quarter each in the shell and in the store."""
    pools = all_faults()
    shares = {"core": count - count // 4 * 2, "shell": count // 4, "store": count // 4}
    faults = [fault for room, share in shares.items() for fault in dice.sample(pools[room], share)]
    dice.shuffle(faults)
    return faults


TOLD: Final = re.compile(r"^ *\d+ (\S+):(\d+) (\S+): (.*)  ->  (.*)$")
"""Matches the lines that `run` prints about a fault."""


def survivors_in(text: str) -> list[Fault]:
    """Return the faults that survived in a run with this output, except those that can no longer be made."""
    there: dict[tuple[str, ...], list[Fault]] = {}
    for fault in chain(*all_faults().values()):
        there.setdefault((fault.path, fault.place, fault.old.strip(), fault.new.strip()), []).append(fault)
    found = []
    lines = text.splitlines()
    for line, worlds, tests in zip(lines, lines[1:], lines[2:], strict=False):
        told = TOLD.match(line)
        if told is None or SURVIVES not in worlds + tests:
            continue
        path, number, *others = told.groups()
        alike = there.get((path, *others))
        if alike:
            found.append(min(alike, key=lambda fault: abs(fault.line - int(number))))
        else:
            print(f"gone: {line.strip()}")
    return found


class Copy:
    """A copy of the checkout without its samples, into which faults are put one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists() and "samples" not in name.split("/"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name, follow_symlinks=False)

    def look(self, fault: Fault, seeds: int, reach: Reach) -> Found:
        """Run the worlds and the tests that reach a fault; return the first world and the first test that notice it."""
        path = self.folder / fault.path
        source = path.read_text("utf-8")
        lines = source.splitlines(keepends=True)
        assert lines[fault.line - 1].rstrip("\n") == fault.old, f"{fault.path} has changed since it was read"
        statement = statement_around(source, fault.line)
        lines[fault.line - 1] = f"{fault.new}\n"
        _put(path, "".join(lines))
        try:
            worlds = self._worlds(reach.seeds(fault.path, statement, seeds))
            return Found(fault, worlds, self._tests(reach.files(fault.path, statement), reach.seconds))
        finally:
            _put(path, source)

    def _worlds(self, seeds: Sequence[int]) -> str:
        """Return what the first world that breaks prints; empty if no world breaks."""
        if not seeds:
            return NOT_LOOKED_AT
        return self._run([sys.executable, "-c", WORLDS, " ".join(map(str, seeds))], WORLD_S * len(seeds))

    def _tests(self, files: Sequence[str], seconds: Mapping[str, float]) -> str:
        """Return the first test that fails; empty if none does.

        The first file, with the tests of the module itself, is often enough.
        """
        for part in (files[:1], files[1:]):
            command = [
                *(sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"),
                *("-o", f"timeout={TEST_S}", *part),
            ]
            if part and (failed := self._run(command, sum(seconds.get(file, 0) for file in part))):
                return failed
        return ""

    def _run(self, command: Sequence[str], usual_s: float) -> str:
        """Return, in a few words, how a command that usually takes `usual_s` failed; empty if it did not fail."""
        limit_s = LIMIT_S + SLOWER * usual_s
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(self.folder)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                status = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return f"no end within {limit_s:.0f} s"
            finally:
                # Nodes that a test has started may outlive it.
                subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
                process.wait()
            output.seek(0)
            told = [line.strip() for line in output if line.strip()]
        if status == 0:
            return ""
        failed = [line for line in told if BROKEN.match(line)]
        return (
            (failed or told or ["it ended"])[-1 if not failed else 0]
            .removeprefix("FAILED ")
            .partition(" - ")[0]
        )


def _put(path: Path, source: str) -> None:
    """Write a module, and delete its compiled form, because Python recognizes changes only by size and time in
    seconds.
    """
    path.write_text(source, "utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def run(faults: Sequence[Fault], seeds: int, jobs: int, reach: Path | None) -> list[Found]:
    """Try all faults, several at once, and report each as soon as its outcome is known.

    reach: the file in which an earlier run has kept its measurements; None to measure again.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mqproto-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            copies.put(Copy(Path(folder, str(number))))
        known = _measured(Path(folder), seeds) if reach is None else kept(reach)
        print(f"it is known who executes each line   ({time.monotonic() - began:,.0f} s)", flush=True)

        def look(numbered: tuple[int, Fault]) -> Found:
            number, fault = numbered
            copy = copies.get()
            try:
                found = copy.look(fault, seeds, known)
            finally:
                copies.put(copy)
            print_found(number, found, time.monotonic() - began)
            return found

        return list(pool.map(look, enumerate(faults, 1)))


def print_found(number: int, found: Found, seconds: float) -> None:
    """Print the outcome of a fault, in three lines that `survivors_in` reads."""
    print(f"{number:3} {found.fault}")
    print(f"      worlds: {found.worlds or SURVIVES}")
    print(f"      tests: {found.tests or SURVIVES}   ({seconds:,.0f} s)", flush=True)


def _measured(folder: Path, seeds: int) -> Reach:
    """Return which worlds and tests execute each line, measured in a separate copy."""
    copy, place = Copy(folder / "measured"), folder / "coverage"
    place.mkdir()
    reach = measured(copy.folder, place, seeds, TESTS)
    reach.keep(REACH)
    return reach


def explanation(fault: Fault) -> str | None:
    """Return why a change is harmless, if that is known."""
    return EXPLAINED.get((fault.path, fault.old.strip(), fault.new.strip()))


def tell(found: Sequence[Found]) -> None:
    """Print the table at the end."""
    for who in ("worlds", "tests"):
        seen = [one for one in found if getattr(one, who) != NOT_LOOKED_AT]
        survivors = [one.fault for one in seen if not getattr(one, who)]
        faults = len(seen) - sum(explanation(fault) is not None for fault in survivors)
        caught = len(seen) - len(survivors)
        print(
            f"\n{who} noticed {caught} of {faults} faults, {100 * caught / max(faults, 1):.0f} %; survivors:"
        )
        for room, count in Counter(fault.room for fault in survivors).items():
            print(f"  {count} in the {room}")
        for fault in survivors:
            reason = explanation(fault)
            print(f"  {fault}{f'  (no fault: {reason})' if reason else ''}")
    not_looked_at = Counter(one.fault.room for one in found if one.worlds == NOT_LOOKED_AT)
    rooms = ", ".join(f"{count} in the {room}" for room, count in not_looked_at.items())
    print(f"\nno world executes {sum(not_looked_at.values())} of all {len(found)}: {rooms}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=None, help="of the dice; by default one that is drawn")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many worlds look at each")
    parser.add_argument("--jobs", type=int, default=2, help="how many are looked at at once")
    parser.add_argument(
        "--rooms", nargs="+", choices=ROOMS, default=[*ROOMS], help="only the faults of these"
    )
    parser.add_argument("--again", type=Path, help="the survivors in this output of an earlier run")
    parser.add_argument(
        "--reach", type=Path, help=f"who executes each line, from an earlier run: {REACH.relative_to(ROOT)}"
    )
    parser.add_argument("--list", action="store_true", help="only say which they are")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    if options.again is None:
        print(f"{options.faults} faults with the seed {seed}")
        faults = drawn(options.faults, random.Random(seed))
    else:
        faults = survivors_in(options.again.read_text("utf-8"))
    faults = [fault for fault in faults if fault.room in options.rooms]
    if options.list:
        print(*faults, sep="\n")
    else:
        tell(run(faults, options.seeds, options.jobs, options.reach))


if __name__ == "__main__":
    main()
