"""Finds the place in a program's own code where a signal killed it, as a debugger would.

This works only on Linux, on the processors in REGISTERS. The program needs no symbols.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

REGISTERS: Final = {"x86_64": (16, 19), "aarch64": (32, 31)}
"""The positions of the instruction pointer and the stack pointer, in the order in which Linux reports registers."""
TRACE_ME: Final = 0
CONTINUE: Final = 7
GET_REGISTERS: Final = 0x4204
GENERAL: Final = 1
"""The numbers of three ptrace(2) requests (above), and of the set of general registers."""
REGISTER_COUNT: Final = 128
"""A number greater than the number of registers of any processor."""
STACK_BYTES: Final = 64 * 2**10
"""The number of bytes of the stack that are searched for callers."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def where_it_died(arguments: Sequence[str], data: bytes, number: int, limit_s: float) -> str:
    """Run a program again; return the place in its own code where a signal killed it, or an empty text if that is
    unknown.

    Args:
        data: the program's standard input.
        number: the signal's number.
        limit_s: the time in seconds after which the program is killed.
    """
    if platform.system() != "Linux" or platform.machine() not in REGISTERS:
        return ""
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    trace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    place = ""
    with tempfile.TemporaryFile() as given:
        given.write(data)
        given.seek(0)
        process = subprocess.Popen(
            arguments,
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=lambda: trace(TRACE_ME, 0, None, None),
        )
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        try:
            while os.WIFSTOPPED(status := os.waitpid(process.pid, 0)[1]):
                stopped_by = os.WSTOPSIG(status)
                if stopped_by == number:
                    with suppress(OSError):
                        place = _place(trace, process.pid)
                # The first stop is for the tracer alone: the program has begun.
                passed_on = 0 if stopped_by == signal.SIGTRAP else stopped_by
                trace(CONTINUE, process.pid, None, passed_on)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return place


def _place(trace: Any, process: int) -> str:
    """Return the innermost place, within the program's own file, at which the program has stopped."""
    registers = (ctypes.c_uint64 * REGISTER_COUNT)()
    vector = _Vector(ctypes.addressof(registers), ctypes.sizeof(registers))
    if trace(GET_REGISTERS, process, GENERAL, ctypes.addressof(vector)) == -1:
        return ""
    at, top = (registers[index] for index in REGISTERS[platform.machine()])
    own = os.readlink(f"/proc/{process}/exe")
    code = list(_code_of(process, own))
    memory = os.open(f"/proc/{process}/mem", os.O_RDONLY)
    try:
        stack = os.pread(memory, STACK_BYTES, top)
    finally:
        os.close(memory)
    words = struct.unpack(f"{len(stack) // 8}Q", stack[: len(stack) // 8 * 8])
    for address in (at, *words):  # The stack contains the return addresses.
        for start, end, begin in code:
            if start <= address < end:
                return f"{os.path.basename(own)}+{address - begin:#x}"
    return ""


def _code_of(process: int, path: str) -> Iterator[tuple[int, int, int]]:
    """Yield each part of a file that is mapped as code: its start, its end, and the start of the file's mapping."""
    begin = None
    with open(f"/proc/{process}/maps") as maps:
        for line in maps:
            addresses, rights, *_, name = line.rstrip("\n").split(maxsplit=5)
            if name == path:
                start, end = (int(each, 16) for each in addresses.split("-"))
                begin = start if begin is None else begin
                if "x" in rights:
                    yield start, end, begin
