"""The judge of a program in any language, which reads packets from its standard input.

Each process gets one packet, which is slow, or, if the program reads in a loop, 64 packets one after the other. Either
way, a crash ends that process and not the fuzzer.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final

from mqproto.base.errors import UsageError
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
        UsageError: there is no such program.
    """

    def __init__(self, command: str, limit_s: float, *, loop: bool = False) -> None:
        try:
            self.arguments = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--program {command!r}: {error}") from None
        if not self.arguments or shutil.which(self.arguments[0]) is None:
            raise UsageError(f"--program {command!r}: there is no such program; give its path")
        self.limit_s = limit_s
        self.block = BLOCK if loop else 1
        self.counts: Counter[str] = Counter()

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
        # A program that answers at once has told how many it read. For others, find this by bisection.
        read = len(ended.stdout) if self.block > 1 else 0
        too_many = read + 1 if 0 < read < len(packets) else len(packets)
        while too_many - read > 1:
            middle = (read + too_many) // 2
            if self._is_well(self._run(packets[:middle])):
                read = middle
            else:
                too_many = middle
        ways = [answer or None for answer in ended.stdout[:read].ljust(read, b"\0")]
        try:
            if self.block > 1:
                self.judge_again(packets[read])
            self._ways(packets, ended)
        except Broken as error:
            return [*ways, error]
        return [*ways, None]

    def _run(self, packets: Sequence[bytes]) -> subprocess.CompletedProcess[bytes]:
        """Run the program with these packets. The returned status is NO_END if the program had to be killed."""
        try:
            return subprocess.run(
                self.arguments,
                input=self._input(packets),
                capture_output=True,
                timeout=self.limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return subprocess.CompletedProcess(
                self.arguments, NO_END, error.stdout or b"", error.stderr or b""
            )

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
        first = re.sub(r"\d+", "", words.partition("\n")[0])
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
