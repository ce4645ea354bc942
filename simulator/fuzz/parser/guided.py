"""`--guided`: libFuzzer chooses what to mutate, by the branches of the parser that it sees taken.

It comes with the package atheris, which is no dependency of ours: it is there on some systems only. Its loop does not
return, so it has a process of its own, which sends the report home and ends itself.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.wire import codec
from simulator.fuzz.mutations import Mutant
from simulator.fuzz.parser.bounds import memory_limit
from simulator.fuzz.parser.parser import LARGEST, OURS, Fuzzer, Options, Report, fuzzer_of

MISSING: Final = (
    "--guided needs atheris: pip install atheris; "
    "without --guided, whatever takes a new way through the parser is mutated further as well"
)


def fuzz_guided(options: Options) -> Report:
    """Fuzz a parser until the time is over; all single mutations first, then what libFuzzer likes.

    Raises:
        UsageError: atheris is not installed, or the target is none.
    """
    if options.program:
        raise UsageError("--guided sees the branches of Python only; leave it out with --program")
    try:
        found = importlib.util.find_spec("atheris")
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise UsageError(MISSING)
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    # Made here, as a process that ends itself tidies nothing up.
    with tempfile.TemporaryDirectory() as folder:
        child = context.Process(target=_fuzz, args=(options, Path(folder), theirs))
        child.start()
        theirs.close()
        answer = None
        try:
            answer = ours.recv()
        except EOFError:
            pass
        finally:
            child.join()
    if answer is None:
        raise UsageError(f"the guided fuzzer ended with status {child.exitcode}; its last words stand above")
    if isinstance(answer, MqprotoError):
        raise answer
    report: Report = answer
    return report


def _fuzz(options: Options, folder: Path, home: Connection) -> None:
    """The process of its own."""
    # Not named to the reader of imports: no extra of ours installs it.
    atheris: Any = importlib.import_module("atheris")
    try:
        with atheris.instrument_imports():
            fuzzer = fuzzer_of(options)
        for function in _functions(options.target):
            atheris.instrument_func(function)
        _drive(atheris, fuzzer, folder, home)
    except MqprotoError as error:
        home.send(error)


def _functions(target: str) -> Iterator[FunctionType]:
    """Those of our own codec that decide: imported long ago, and some of them generated."""
    if target != OURS:
        return
    for value in vars(codec).values():
        for each in value.values() if isinstance(value, dict) else [value]:
            if isinstance(each, FunctionType):
                yield each


def _drive(atheris: Any, fuzzer: Fuzzer, folder: Path, home: Connection) -> None:
    options = fuzzer.options
    end_s = time.monotonic() + options.seconds
    drawn = Mutant("", "guided", b"")

    def draw(data: bytes, largest: int, seed: int) -> bytes:
        nonlocal drawn
        drawn = fuzzer.material.mutant(data, random.Random(seed))
        return drawn.data[:largest]

    def try_one(data: bytes) -> None:
        name = drawn.name if drawn.data == data else "found by libFuzzer"
        fuzzer.try_one(Mutant(name, "guided", data))
        if time.monotonic() > end_s or fuzzer.is_enough:
            fuzzer.end()
            home.send(fuzzer.report)
            sys.stdout.flush()
            os._exit(0)

    for number, seed in enumerate(fuzzer.material.seeds):
        (folder / str(number)).write_bytes(seed)
    with fuzzer.watch.watching(), memory_limit(options.memory_bytes):
        fuzzer.begin()
        for mutant in fuzzer.single_mutations():
            fuzzer.try_one(mutant)
            if time.monotonic() > end_s or fuzzer.is_enough:
                break
        # One mutation of an entry at a time, as ours is a whole one, and knows its entry well.
        flags = [f"-seed={options.seed % 2**31 or 1}", f"-max_len={LARGEST}", "-mutate_depth=1"]
        quiet = ["-verbosity=0", "-rss_limit_mb=0", "-timeout=0", "-handle_int=0"]
        atheris.Setup(["mqproto", str(folder), *flags, *quiet], try_one, custom_mutator=draw)
        atheris.Fuzz()
