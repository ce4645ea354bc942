"""Programs as targets: refusals, crashes, sanitizers, and programs that do not end."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.cli.cli import FINDING, run_command
from mqproto.simulator.fuzz.parser.judges import Broken
from mqproto.simulator.fuzz.parser.parser import Options, fuzz_parser, repeat
from mqproto.simulator.fuzz.parser.program import Program
from mqproto.simulator.fuzz.parser.seeds import examples


def program(folder: Path, text: str) -> str:
    """The command of a program in Python, which has the packet in `data`."""
    path = folder / "a_program.py"
    path.write_text("import os, sys, time\ndata = sys.stdin.buffer.read()\n" + textwrap.dedent(text))
    # Without its site it starts in half the time.
    return f"{sys.executable} -S -E {path}"


def test_a_status_says_whether_it_reads_or_refuses(tmp_path: Path) -> None:
    judge = Program(program(tmp_path, "sys.exit(f'offset {len(data)}' if len(data) < 9 else 0)"), 20)
    assert judge.judge(bytes(9)) is None
    assert judge.judge(b"12") == judge.judge(b"123") == (1, "offset ")
    assert judge.counts == {"ends by itself and in time": 3, "of these refused": 2}


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("os.kill(os.getpid(), 11)", "signal: SIGSEGV"),
        ("os.abort()", "signal: SIGABRT"),
        (
            "sys.exit('==1==ERROR: AddressSanitizer: heap-buffer-overflow on\\n    #0 0x1f in read_soap a.c:7')",
            "sanitizer: AddressSanitizer: heap-buffer-overflow in read_soap",
        ),
        (
            "print('a.c:7:3: runtime error: shift exponent 64 is', file=sys.stderr)",
            "sanitizer: shift exponent  in ?",
        ),
        ("time.sleep(60)", "no end"),
    ],
)
def test_what_ends_it_otherwise_is_a_finding(text: str, group: str, tmp_path: Path) -> None:
    with pytest.raises(Broken) as broken:
        Program(program(tmp_path, text), 20 if "sleep" not in text else 0.3).judge_again(b"")
    assert broken.value.group == group


def test_a_program_that_reads_nothing_is_no_finding() -> None:
    assert Program("true", 20).judge(bytes(200_000)) is None


@pytest.mark.parametrize("command", ["", "no-such-program", "'"])
def test_a_program_that_is_none_is_refused_by_name(command: str) -> None:
    with pytest.raises(UsageError, match="--program"):
        Program(command, 1)


def test_a_crash_is_found_minimised_and_repeated(tmp_path: Path) -> None:
    command = program(tmp_path, "data[2:3] == bytes(1) and os.kill(os.getpid(), 11)")
    options = Options(program=command, packets=len(examples()) + 150, seconds=120, folder=tmp_path / "found")
    [finding] = fuzz_parser(options).findings.first.values()
    assert finding.group == "signal: SIGSEGV"
    assert finding.data == bytes(3)
    assert repeat(finding) == (finding.group, finding.detail)


def test_the_command_takes_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = program(tmp_path, "os.abort()")
    arguments = [
        "fuzz",
        "parser",
        "--program",
        command,
        "--packets",
        "1",
        "--out",
        os.fspath(tmp_path / "found"),
    ]
    assert run_command(arguments) == FINDING
    assert "SIGABRT" in capsys.readouterr().out
