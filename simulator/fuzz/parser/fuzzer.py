"""`mqproto fuzz parser`, which feeds packets to a parser for a given time and keeps the faults that it finds.

First come the unmutated seeds, which must pass, and then every single mutation of each seed. After that come random
mutations of seeds, of generated packets, and of packets that took a new way through the parser.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any, Final

from mqproto.base.errors import UsageError
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.fuzz.findings import Findings, FuzzFinding
from mqproto.simulator.fuzz.minimise import minimised_packet
from mqproto.simulator.fuzz.mutations import Mutant, counted
from mqproto.simulator.fuzz.parser.bounds import Watch, memory_limit
from mqproto.simulator.fuzz.parser.codec import OwnCodec
from mqproto.simulator.fuzz.parser.judges import (
    DEFAULT_EXPECTED,
    Broken,
    Foreign,
    Judge,
    detail_of,
    find_exceptions,
    find_function,
    group_of,
)
from mqproto.simulator.fuzz.parser.material import Material, Packets
from mqproto.simulator.fuzz.parser.program import Program
from mqproto.simulator.fuzz.parser.readers import TARGETS
from mqproto.simulator.fuzz.parser.seeds import a_ping, examples, from_files, save_corpus

CORPUS: Final = 512
"""The number of packets that are kept because they took a new way, so that they can be mutated further."""
LARGEST: Final = 4_096
"""The maximum size, in bytes, of a packet that is kept, and of a seed whose mutations are all tried. Larger ones would
take up all the time.
"""
MINIMISE_S: Final = 10.0
"""The limit, in seconds of processor time, for minimizing a finding. By the clock it is three times as long."""
HASTE: Final = 8
"""While a finding is minimized, the parser's time limit for each packet is divided by this number."""

UNLIMITED: Final = 2**60
UNLIMITED_S: Final = 1e6
OURS: Final = "mqproto.wire"
"""The target for our own codec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run.

    target: `module:function`, OURS, or one of TARGETS.
    program: instead of a target, a program that reads one packet from its standard input.
    loop: whether the program reads many packets (see Program).
    expect: the exceptions by which a foreign function refuses a packet.
    seconds: the duration, in wall-clock time.
    packets: the number of packets after which to stop; the same number and seed give the same packets.
    corpus: files with further packets to begin with.
    corpus_out: a folder for the seeds, packets that took a new way, and a dictionary; None to write nothing.
    folder: the folder for findings; None to keep them in memory.
    limit_s: the processor time that the parser may take for one packet.
    memory_mb: the memory that it may take in all, in addition to the memory in use at the start.
    """

    target: str = OURS
    program: str = ""
    loop: bool = False
    expect: tuple[str, ...] = DEFAULT_EXPECTED
    seconds: float = 60.0
    packets: int | None = None
    seed: int = 0
    corpus: tuple[Path, ...] = ()
    corpus_out: Path | None = None
    folder: Path | None = None
    limit_s: float = 2.0
    memory_mb: int = 512

    @property
    def name(self) -> str:
        """The name of the target or program."""
        return self.program or self.target

    @property
    def watch_s(self) -> float:
        """The limit of this process's own time for one packet. A program has its own, and may print without end."""
        return UNLIMITED_S if self.program else self.limit_s

    @property
    def memory_bytes(self) -> int:
        """The memory limit. It is UNLIMITED for a program, because a program would inherit the limit, and many reserve
        more than they use.
        """
        return UNLIMITED if self.program else self.memory_mb * 2**20


@dataclass(slots=True)
class Report:
    """The results of a run.

    cpu_s: the processor time of this process and its programs, which does not grow if the machine is busy.
    ways: the number of different ways that were taken through the parser.
    slowest_s, slowest: this process's processor time for the slowest packet, and that packet's mutation.
    memory_mb, memory_before_mb: this process's memory at its peak, and at the start. The peak is 0 for a program.
    """

    target: str
    seed: int
    findings: Findings
    questions: Counter[str]
    kinds: Counter[str] = field(default_factory=Counter)
    packets: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    ways: int = 0
    slowest_s: float = 0.0
    slowest: str = ""
    memory_mb: int = 0
    memory_before_mb: int = 0
    interrupted: bool = False

    @property
    def rate(self) -> float:
        """The number of packets per second of one core, including their generation and everything else."""
        return self.packets / self.cpu_s if self.cpu_s else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "seed": self.seed,
            "packets": self.packets,
            "seconds": round(self.seconds, 3),
            "packets_per_core_second": round(self.rate),
            "ways": self.ways,
            "slowest_s": round(self.slowest_s, 6),
            "slowest": self.slowest,
            "memory_mb": self.memory_mb,
            "memory_before_mb": self.memory_before_mb,
            "questions": dict(self.questions),
            "kinds": dict(self.kinds),
            "findings": self.findings.as_json(),
        }


def judge_of(options: Options) -> Judge:
    """Return the judge of the target or program."""
    if options.program:
        return Program(options.program, options.limit_s, loop=options.loop)
    if options.loop:
        raise UsageError("--loop is about a --program; name one")
    if options.target == OURS:
        return OwnCodec()
    if options.target in TARGETS:
        return TARGETS[options.target].judge
    return Foreign(find_function(options.target), find_exceptions(options.expect))


def fuzz_parser(options: Options, show: Callable[[Report], None] = lambda report: None) -> Report:
    """Fuzz a parser until the time is up.

    Args:
        show: called about once a second.

    Raises:
        UsageError: there is no such target, or the target refuses all valid packets.
    """
    fuzzer = Fuzzer(judge_of(options), material_of(options), options)
    if options.corpus_out is not None:
        options.corpus_out.mkdir(
            parents=True, exist_ok=True
        )  # Whatever is wrong with it is said before the run.
    with fuzzer.watch.watching(), memory_limit(options.memory_bytes):
        fuzzer.run(show)
    return fuzzer.report


def material_of(options: Options) -> Material:
    """Return the inputs for a target: packets, or inputs in its own format if it is one of our readers of other
    formats.
    """
    if not options.program and options.target in TARGETS:
        material = TARGETS[options.target].material
        material.seeds = [*from_files(options.corpus, as_they_are=True), *material.seeds]
        return material
    brought = from_files(options.corpus)
    ping = [] if options.target == OURS and not options.program else [a_ping()]
    return Packets([*brought, *examples(), *ping])


def repeat(finding: FuzzFinding) -> tuple[str, str] | None:
    """Return the group and detail of the fault that a finding's bytes cause now, or None if they cause none.

    Raises:
        UsageError: the target is missing, or the file does not name it.
    """
    how = finding.how
    try:
        options = Options(
            target=str(how["target"]),
            program=str(how["program"]),
            loop=bool(how.get("loop")),
            expect=tuple(map(str, how["expect"])),
            limit_s=float(how["limit_s"]),
            memory_mb=int(how["memory_mb"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"the finding does not say how to repeat it: {error}") from None
    judge, watch = judge_of(options), Watch(options.watch_s)
    with watch.watching(), memory_limit(options.memory_bytes):
        return fault(judge, watch, finding.data)


def fault(judge: Judge, watch: Watch, data: bytes) -> tuple[str, str] | None:
    """Ask every question about a packet; return the group and detail of the fault, or None if there is none."""
    watch.packets += 1
    try:
        judge.judge_again(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Such as a panic of Rust, CancelledError, and SystemExit.
        return group_of(error), detail_of(error)
    return None


def most_memory_mb() -> int:
    """Return the peak memory of this process, in MiB, as Linux counts it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def cpu_s() -> float:
    """Return the processor time of this process and of its children that have ended, to the microsecond."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


class Fuzzer:
    """Carries out one run of the fuzzer on a parser."""

    def __init__(self, judge: Judge, material: Material, options: Options) -> None:
        self.judge = judge
        self.material = material
        self.options = options
        self.dice = chance(options.seed, "fuzz parser")
        self.watch = Watch(options.watch_s)
        self.report = Report(options.name, options.seed, Findings(options.folder), judge.counts)
        self._judge = judge.judge
        self._began_s = self._began_cpu_s = 0.0
        self._ways: set[Hashable] = set()
        self._corpus: list[bytes] = []

    def run(self, show: Callable[[Report], None]) -> None:
        """Try packets until the time is up or the wanted number of packets is reached."""
        try:
            self._began_s, self._began_cpu_s = time.monotonic(), cpu_s()
            self.report.memory_before_mb = most_memory_mb()
            self._try_seeds()
            self._try_all(self._began_s + self.options.seconds, show)
        except KeyboardInterrupt:
            self.report.interrupted = True
        finally:
            self._tell()
            self.report.findings.close()
            if self.options.corpus_out is not None:
                save_corpus(self.options.corpus_out, [*self.material.seeds, *self._corpus])

    def _tell(self) -> Report:
        self.report.seconds = time.monotonic() - self._began_s
        self.report.cpu_s = cpu_s() - self._began_cpu_s
        self.report.ways = len(self._ways)
        if not self.options.program:
            self.report.memory_mb = most_memory_mb()
        return self.report

    def _try_all(self, end_s: float, show: Callable[[Report], None]) -> None:
        shown_s, enough = time.monotonic(), self.options.packets
        block: list[Mutant] = []
        size = self.judge.block if isinstance(self.judge, Program) else 1
        for mutant in self._mutants():
            if size == 1:
                self._try(mutant)
            else:
                block.append(mutant)
                if len(block) < size and self.report.packets + len(block) != enough:
                    continue
                self._try_block(block)
                block.clear()
            now_s = time.monotonic()
            if now_s > end_s or (enough is not None and self.report.packets >= enough):
                break
            if now_s > shown_s + 1:
                shown_s = now_s
                show(self._tell())

    def _judged(self, mutant: Mutant) -> Hashable:
        """Return the way that a packet took, or its fault: any exception but Ctrl-C. Rust panics with another."""
        self.watch.packets += 1
        self.report.packets += 1
        self.report.kinds[mutant.kind] += 1
        try:
            return self._judge(mutant.data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._found(mutant, error)
            return error

    def _try(self, mutant: Mutant) -> None:
        """Try one packet. Keep it if it takes a new way."""
        began_s = process_time()
        way = self._judged(mutant)
        if isinstance(way, BaseException):
            return
        if (took_s := process_time() - began_s) > self.report.slowest_s:
            self.report.slowest_s = took_s
            self.report.slowest = f"{counted(len(mutant.data))}: {mutant.name}"
        if way not in self._ways:
            self._keep(way, mutant.data)

    def _try_block(self, block: Sequence[Mutant]) -> None:
        """Try several packets in one process of the program."""
        assert isinstance(self.judge, Program), "others are given one"
        self.watch.packets += 1
        for mutant, way in zip(block, self.judge.judge_all([each.data for each in block]), strict=True):
            self.report.packets += 1
            self.report.kinds[mutant.kind] += 1
            if isinstance(way, Broken):
                self._found(mutant, way)
            elif way not in self._ways:
                self._keep(way, mutant.data)

    def _mutants(self) -> Iterator[Mutant]:
        """Yield an endless stream of mutants, which the parser gets after the seeds."""
        for seed in self.material.seeds:
            if len(seed) <= LARGEST:
                yield from self.material.singles(seed)
        while True:
            packet = self._pick()
            for _ in range(self.judge.burst(packet)):
                yield self.material.mutant(packet, self.dice)

    def _try_seeds(self) -> None:
        """Try the unmutated packets, because it is useless to fuzz a parser that refuses them all."""
        ways = [self._judged(Mutant("unmutated", "unmutated", seed)) for seed in self.material.seeds]
        self._ways.update(way for way in ways if not isinstance(way, BaseException))
        refused = sum(way is not None and not isinstance(way, BaseException) for way in ways)
        if isinstance(self.judge, Foreign | Program) and refused == len(self.material.seeds):
            raise UsageError(
                f"{self.options.name} refuses every valid packet; is it the right one? "
                "If it reads others, give them with --corpus"
            )

    def _pick(self) -> bytes:
        roll = self.dice.random()
        if roll < 0.25:
            return self.material.generated(self.dice)
        if roll < 0.75 and self._corpus:
            return self.dice.choice(self._corpus)
        return self.dice.choice(self.material.seeds)

    def _keep(self, way: Hashable, data: bytes) -> None:
        self._ways.add(way)
        if len(data) > LARGEST:
            return
        if len(self._corpus) < CORPUS:
            self._corpus.append(data)
        else:
            self._corpus[self.dice.randrange(CORPUS)] = data

    def _found(self, mutant: Mutant, error: BaseException) -> None:
        """Count a finding; minimize and keep it if it is the first of its group."""
        group, detail = group_of(error), detail_of(error)
        findings = self.report.findings
        if findings.knows(group):
            return
        how: dict[str, Any] = {
            "fuzz": "parser",
            "target": self.options.target,
            "program": self.options.program,
            "loop": self.options.loop,
            "expect": list(self.options.expect),
            "seed": self.options.seed,
            "packet": self.report.packets,
            "mutation": mutant.name,
            "unminimised_bytes": len(mutant.data),
            "limit_s": self.options.limit_s,
            "memory_mb": self.options.memory_mb,
        }
        seen = fault(self.judge, self.watch, mutant.data)
        data = mutant.data
        if seen is None or seen[0] != group:
            how["note"] = "it did not show again by itself: something before it had a part in it"
        else:
            least = self._minimised(data, group)
            seen = fault(self.judge, self.watch, least)
            if seen is not None and seen[0] == group:
                data, detail = least, seen[1]
        findings.add(FuzzFinding(group, detail, data, how))

    def _minimised(self, data: bytes, group: str) -> bytes:
        end_cpu_s, end_s = cpu_s() + MINIMISE_S, time.monotonic() + 3 * MINIMISE_S

        def still(data: bytes) -> bool:
            if cpu_s() > end_cpu_s or time.monotonic() > end_s:
                return False
            found = fault(self.judge, self.watch, data)
            return found is not None and found[0] == group

        # A shorter limit leaves time for more tries, and shows an endless loop just as well. A packet that takes too
        # much memory must stay far beyond the limit when minimised, or it may not show the fault another time.
        self.watch.limit_s = self.options.watch_s / HASTE
        try:
            with memory_limit(2 * self.options.memory_bytes):
                return minimised_packet(data, still)
        finally:
            self.watch.limit_s = self.options.watch_s
