"""The judge of a program in any language, which reads packets from its standard input.

Each process gets one packet, which is slow, or, if the program reads in a loop, 64 packets one after the other. Either
way, a crash ends that process and not the fuzzer.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import shown
from mqproto.simulator.fuzz.parser.crashes import where_it_died
from mqproto.simulator.fuzz.parser.judges import Broken

SANITIZER: Final = re.compile(r"(\w+Sanitizer: [\w-]+)|runtime error: ([^\d\n]+)")
"""Matches a message of a C compiler's sanitizer. A sanitizer ends a program with a status that may also mean a
refusal.
"""
FRAME: Final = re.compile(
    r"#\d+ 0x[0-9a-f]+ in (?!_|(?:mem|str|abort|raise|free|malloc|calloc|realloc)\w*\b)(\w+)"
)
"""Matches a line of a sanitizer's stack trace, except a line in an allocator, in a copying function or in the sanitizer
itself.
"""
BURST: Final = 50
NO_END: Final = 1_000
"""The status that stands for a program that had to be killed; no program ends with it."""
BLOCK: Final = 64
"""The number of packets that one process gets if the program reads in a loop."""
LONGEST: Final = 2**20
"""The number of bytes that are kept of what a program prints: it may print without end."""
CRASHES: Final = {128 + number: -number for number in (4, 6, 7, 8, 11)}
"""The statuses with which a shell reports SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV, and what they stand for."""


class Program:
    """Judges a program that ends on its own: with status 0 if it accepts a packet, and with another status if it
    refuses it.

    Args:
        command: the command in shell syntax, although no shell runs it.
        limit_s: the limit of wall-clock time for each process, and thus for a whole block of packets.
        loop: whether the program reads one packet after another, each preceded by its length (4 bytes, little-endian),
            and ends with status 0 when there are no more. It may answer each packet
            with a byte: 0 to accept it, or another to refuse it.

    Raises:
        UsageError: the system cannot run this program.
    """

    def __init__(self, command: str, limit_s: float, *, loop: bool = False) -> None:
        try:
            self.arguments = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--program {command!r}: {error}") from None
        self.limit_s = limit_s
        self.block = BLOCK if loop else 1
        self.counts: Counter[str] = Counter()
        try:
            with self._running(subprocess.DEVNULL):
                pass  # It is killed at once.
        except (OSError, IndexError) as error:
            raise UsageError(f"--program {command!r}: {error}; give the path of a program") from None

    def judge(self, data: bytes) -> Hashable:
        [way] = self.judge_all([data])
        if isinstance(way, Broken):
            raise way
        return way

    def judge_again(self, data: bytes) -> None:
        self._ways([data], self._run([data]))

    def judge_all(self, packets: Sequence[bytes]) -> list[Hashable]:
        """Return the way that each packet took, or its fault. There may be at most `block` packets."""
        self.counts["ends by itself and in time"] += len(packets)
        ways: list[Hashable] = []
        while len(ways) < len(packets):
            ways += self._judged(packets[len(ways) :])
        self.counts["of these refused"] += sum(way is not None for way in ways if not isinstance(way, Broken))
        return ways

    def burst(self, packet: bytes) -> int:
        return BURST * self.block

    def _judged(self, packets: Sequence[bytes]) -> list[Hashable]:
        """Return the path that each packet took, up to the first packet that shows a fault.

        The last item is then that fault. If the program reads in a loop, the faulty packet is run again alone. If it
        then shows no fault, the fault of the whole run is returned.
        """
        ended = self._run(packets)
        if self._is_well(ended):
            return self._ways(packets, ended)
        # A program that answers at once has told how many it read, unless it prints something else. Check that first.
        read, too_many, answered = 0, len(packets), len(ended.stdout)
        guesses = [answered + 1, answered]
        while too_many - read > 1:
            middle = guesses.pop() if guesses else (read + too_many) // 2
            if not read < middle < too_many:
                continue
            if self._is_well(self._run(packets[:middle])):
                read = middle
            else:
                too_many = middle
        answers = ended.stdout if answered == read else bytes(read)
        ways: list[Hashable] = [answer or None for answer in answers]
        try:
            if self.block > 1:
                self.judge_again(packets[read])
            self._ways(packets, ended)
        except Broken as error:
            return [*ways, error]
        return [*ways, None]

    def _run(self, packets: Sequence[bytes]) -> subprocess.CompletedProcess[bytes]:
        """Run the program with these packets.

        The returned status is NO_END if the program, or a holder of its output, had to be killed.
        """
        output, errors, status = bytearray(), bytearray(), NO_END
        end_s = time.monotonic() + self.limit_s
        with TemporaryFile() as given, selectors.DefaultSelector() as pipes:
            given.write(self._input(packets))
            given.seek(0)
            with self._running(given) as process:
                assert process.stdout is not None
                assert process.stderr is not None
                pipes.register(process.stdout, selectors.EVENT_READ, output)
                pipes.register(process.stderr, selectors.EVENT_READ, errors)
                while pipes.get_map() and (remaining_s := end_s - time.monotonic()) > 0:
                    for key, _ in pipes.select(remaining_s):
                        part = os.read(key.fd, LONGEST)
                        key.data.extend(part[: LONGEST - len(key.data)])
                        if not part:
                            pipes.unregister(key.fileobj)
                if not pipes.get_map():
                    with suppress(subprocess.TimeoutExpired):
                        status = process.wait(max(0, end_s - time.monotonic()))
        return subprocess.CompletedProcess(
            self.arguments, CRASHES.get(status, status), bytes(output), bytes(errors)
        )

    @contextmanager
    def _running(self, given: IO[bytes] | int) -> Iterator[subprocess.Popen[bytes]]:
        """Yield the running program. At the end, kill its process group, with everything that it has started.

        The group does not get a terminal's Ctrl-C, so it is also killed if the block is interrupted.
        """
        pipe = subprocess.PIPE
        with subprocess.Popen(
            self.arguments, stdin=given, stdout=pipe, stderr=pipe, process_group=0
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def _input(self, packets: Sequence[bytes]) -> bytes:
        if self.block == 1:
            return packets[0]
        return b"".join(len(packet).to_bytes(4, "little") + packet for packet in packets)

    def _is_well(self, ended: subprocess.CompletedProcess[bytes]) -> bool:
        status = ended.returncode
        is_its_own = not status if self.block > 1 else 0 <= status < NO_END
        return is_its_own and not SANITIZER.search(ended.stderr.decode("utf-8", "replace"))

    def _ways(self, packets: Sequence[bytes], ended: subprocess.CompletedProcess[bytes]) -> list[Hashable]:
        """Return the path that each packet took through the program.

        Raises:
            Broken: the program shows a fault.
        """
        words, status = ended.stderr.decode("utf-8", "replace"), ended.returncode
        if status == NO_END:
            raise Broken("no end", f"it had not ended after {self.limit_s:g} s")
        if report := SANITIZER.search(words):
            where = FRAME.search(words)
            raise Broken("sanitizer", report[0], f"{report[1] or report[2]} in {where[1] if where else '?'}")
        # Numbers are offsets and sizes, which would make each packet a way of its own.
        first = shown(re.sub(r"\d+", "", words.partition("\n")[0]))
        if status < 0:
            name, said = signal.Signals(-status).name, f"its last words: {words[-200:].strip() or 'none'}"
            if place := where_it_died(self.arguments, self._input(packets), -status, self.limit_s):
                name, said = f"{name} at {place}", f"addr2line may name the line; {said}"
            raise Broken("signal", said, name)
        if self.block == 1:
            return [(status, first) if status else None]
        if status:
            raise Broken(
                "status", f"{status}, and it was to read on: {words[-200:].strip()}", f"{status} {first}"
            )
        answers = ended.stdout if len(ended.stdout) == len(packets) else bytes(len(packets))
        return [answer or None for answer in answers]
