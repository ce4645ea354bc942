"""The judge of a program in any language, which is given each packet on its standard input.

Slow, as each packet has a process of its own; in return a crash ends that process and not the fuzzer.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Hashable
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.fuzz.parser.judges import Broken

SANITIZER: Final = re.compile(r"(\w+Sanitizer: [\w-]+)|runtime error: ([^\d\n]+)")
"""What the sanitizers of C compilers say; they end a program by a status that it may have for a refusal, too."""
FRAME: Final = re.compile(r"#\d+ 0x[0-9a-f]+ in (\w+)")
"""A line of their stack traces. The first that is no allocator's or copier's would be better, and is not to be had."""
BURST: Final = 50


class Program:
    """A program that ends by itself: with status 0 where it reads a packet, with another one where it refuses it.

    Args:
        command: as a shell would read it; no shell runs it.
        limit_s: of time, which for a process of its own is not the processor's.

    Raises:
        UsageError: there is no such program.
    """

    def __init__(self, command: str, limit_s: float) -> None:
        try:
            self.arguments = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--program {command!r}: {error}") from None
        if not self.arguments or shutil.which(self.arguments[0]) is None:
            raise UsageError(f"--program {command!r}: there is no such program; give its path")
        self.limit_s = limit_s
        self.counts: Counter[str] = Counter()

    def judge(self, data: bytes) -> Hashable:
        self.counts["ends by itself and in time"] += 1
        status, words = self._run(data)
        if not status:
            return None
        self.counts["of these refused"] += 1
        # Numbers tell offsets and sizes, which would make a way of their own of each packet.
        return status, re.sub(r"\d+", "", words)

    def judge_again(self, data: bytes) -> None:
        self._run(data)

    def burst(self, packet: bytes) -> int:
        return BURST

    def _run(self, data: bytes) -> tuple[int, str]:
        """Its status, and the first line of what it says. Broken, where it was ended by something else."""
        try:
            ended = subprocess.run(
                self.arguments,
                input=data,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=self.limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Broken("no end", f"it had not ended after {self.limit_s:g} s") from None
        except BrokenPipeError:
            return 0, ""
        words = ended.stderr.decode("utf-8", "replace")
        if report := SANITIZER.search(words):
            where = FRAME.search(words)
            raise Broken("sanitizer", report[0], f"{report[1] or report[2]} in {where[1] if where else '?'}")
        if ended.returncode < 0:
            name = signal.Signals(-ended.returncode).name
            raise Broken("signal", f"{name}; its last words: {words[-200:].strip() or 'none'}", name)
        return ended.returncode, words.partition("\n")[0]
