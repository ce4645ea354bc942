"""Programs as targets: refusals, crashes, sanitizers, and programs that do not end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.cli.cli import FINDING, run_command
from mqproto.simulator.fuzz.findings import file_of, load
from mqproto.simulator.fuzz.parser.fuzzer import Options, fuzz_parser, repeat
from mqproto.simulator.fuzz.parser.judges import Broken
from mqproto.simulator.fuzz.parser.program import BLOCK, Program
from mqproto.simulator.fuzz.parser.seeds import examples, from_files
from tests.simulator.hurt.disk import compiler
from tests.test_readme import blocks_of


def program(folder: Path, text: str) -> str:
    """Return the command that runs a Python program with this text.

    The program's variable `data` has the packet.
    """
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
        ("os.kill(os.getpid(), 9)", "signal: SIGKILL"),
        (
            "sys.exit('==1==ERROR: AddressSanitizer: heap-buffer-overflow on\\n    #0 0x1f in read_soap a.c:7')",
            "sanitizer: AddressSanitizer: heap-buffer-overflow in read_soap",
        ),
        (
            "print('a.c:7:3: runtime error: shift exponent 64 is', file=sys.stderr)",
            "sanitizer: shift exponent  in ?",
        ),
        ("time.sleep(60)", "no end"),
        ("while True: os.write(1, bytes(65536))", "no end"),
        ("sys.exit(128 + 11)", "signal: SIGSEGV"),
    ],
)
def test_what_ends_it_otherwise_is_a_finding(text: str, group: str, tmp_path: Path) -> None:
    with pytest.raises(Broken) as broken:
        Program(program(tmp_path, text), 0.3 if "60" in text or "while" in text else 20).judge_again(b"")
    assert broken.value.group == group


def test_a_program_that_reads_nothing_is_no_finding() -> None:
    assert Program("true", 20).judge(bytes(200_000)) is None


def test_a_loop_that_prints_without_end_is_a_finding(tmp_path: Path) -> None:
    command = looping(tmp_path, "while size: os.write(1, bytes(65536))")
    report = fuzz_parser(Options(program=command, loop=True, limit_s=0.1, packets=1, seconds=0.1))
    assert list(report.findings.first) == ["no end"]


@pytest.mark.parametrize("end", [Broken, KeyboardInterrupt])
def test_what_a_program_leaves_behind_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    os.mkfifo(alive := tmp_path / "alive")
    held = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    text = f"alive = open({os.fspath(alive)!r}, 'w')\nos.fork()\nprint(1, flush=True)\ntime.sleep(99)"
    found = Program(program(tmp_path, text), 0.3 if end is Broken else 60)
    if end is KeyboardInterrupt:  # Ctrl-C comes when its first output has come.
        interrupt = property(lambda key: signal.default_int_handler(signal.SIGINT, None))
        monkeypatch.setattr("selectors.SelectorKey.data", interrupt)
    with pytest.raises(end):
        found.judge_again(b"")
    os.set_blocking(held, True)
    assert os.read(held, 5) == b"", "nobody holds its other end"
    os.close(held)


@pytest.mark.parametrize("command", ["", "no-such-program", "'", __file__, os.devnull])
def test_a_program_that_is_none_is_refused_by_name(command: str) -> None:
    with pytest.raises(UsageError, match="--program"):
        Program(command, 1)


@pytest.mark.long
def test_a_crash_is_found_minimised_and_repeated(tmp_path: Path) -> None:
    command = program(tmp_path, "data[2:3] == bytes(1) and os.kill(os.getpid(), 11)")
    options = Options(program=command, packets=len(examples()) + 150, seconds=120, folder=tmp_path / "found")
    [finding] = fuzz_parser(options).findings.first.values()
    assert finding.group.startswith("signal: SIGSEGV")
    assert finding.data == bytes(3)
    assert repeat(finding) == (finding.group, finding.detail)


@pytest.mark.long
def test_the_command_takes_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = program(tmp_path, "os.abort()")
    arguments = [
        "fuzz",
        "parser",
        "--program",
        command,
        "--count",
        "1",
        "--out",
        os.fspath(tmp_path / "found"),
    ]
    assert run_command(arguments) == FINDING
    assert "SIGABRT" in capsys.readouterr().out


def looping(folder: Path, text: str) -> str:
    """Return the command that runs this text in a loop, as a Python program, until there are no more packets.

    Each packet is read into `data`.
    """
    path = folder / "a_loop.py"
    body = textwrap.indent(textwrap.dedent(text), "    ")
    path.write_text(
        f"import os, sys\nread = sys.stdin.buffer.read\nwhile size := read(4):\n"
        f"    data = read(int.from_bytes(size, 'little'))\n{body}\n"
    )
    return f"{sys.executable} -S -E {path}"


PACKETS = [bytes([number]) for number in range(BLOCK)]


def test_one_process_reads_a_block_and_answers_each_with_a_byte(tmp_path: Path) -> None:
    judge = Program(looping(tmp_path, "os.write(1, data)"), 20, loop=True)
    assert judge.judge_all(PACKETS) == [None, *range(1, BLOCK)]
    assert judge.counts == {"ends by itself and in time": BLOCK, "of these refused": BLOCK - 1}
    silent = Program(looping(tmp_path, "pass"), 20, loop=True)
    assert silent.judge_all(PACKETS) == [None] * BLOCK


@pytest.mark.long
@pytest.mark.parametrize("answer", ["", "os.write(1, data)", "os.write(1, b'ok ')", "os.write(1, bytes(99))"])
@pytest.mark.parametrize("bad", [{0}, {63}, {31, 32}, {1, 2, 62}])
@pytest.mark.parametrize(
    ("does", "group"),
    [
        ("os.kill(os.getpid(), 9)", "signal: SIGKILL"),
        ("sys.exit(f'thread 7 panicked')", "status: 1 thread  panicked"),
        ("sys.exit('ERROR: AddressSanitizer: SEGV')", "sanitizer: AddressSanitizer: SEGV in ?"),
    ],
)
def test_of_a_block_each_packet_is_found_that_ends_the_process(
    tmp_path: Path, bad: set[int], answer: str, does: str, group: str
) -> None:
    judge = Program(looping(tmp_path, f"if data[0] in {bad}: {does}\n{answer}"), 20, loop=True)
    ways = judge.judge_all(PACKETS)
    broken = {number: way.group for number, way in enumerate(ways) if isinstance(way, Broken)}
    assert broken == dict.fromkeys(bad, group)


def test_a_packet_without_end_is_found_in_its_block(tmp_path: Path) -> None:
    judge = Program(looping(tmp_path, "while data[0] == 5: pass\nos.write(1, data)"), 0.5, loop=True)
    ways = judge.judge_all(PACKETS[:8])
    assert [way.group if isinstance(way, Broken) else way for way in ways] == [
        None,
        1,
        2,
        3,
        4,
        "no end",
        6,
        7,
    ]


@pytest.mark.long
@pytest.mark.skipif(compiler() is None, reason="no C compiler is installed (cc, gcc or clang)")
@pytest.mark.parametrize("crash", ["*(volatile int *)0 = 1", "abort()"])
def test_two_faults_that_end_it_by_one_signal_are_two_findings(tmp_path: Path, crash: str) -> None:
    """The loop is the one on the page about fuzzing a parser in C.

    The faults are in separate functions, and the program prints nothing about either.
    """
    [loop] = blocks_of("fuzz-a-parser-in-c", "c")
    source = tmp_path / "victim.c"
    source.write_text(
        f"""#include <stdlib.h>
            #include <stddef.h>
            static __attribute__((noinline)) int size(const unsigned char *p) {{ if (p[11] > 127) {crash}; return 0; }}
            static __attribute__((noinline)) int name(const unsigned char *p) {{ if (p[60] == 255) {crash}; return 0; }}
            int parse(const unsigned char *p, size_t n) {{ return n < 16 || size(p) || (n > 60 && name(p)); }}
            {loop.text}"""
    )
    victim = tmp_path / "victim"
    subprocess.run([str(compiler()), "-O1", "-o", victim, source], check=True)
    folder = tmp_path / "found"
    options = Options(program=os.fspath(victim), loop=True, packets=2_000, seconds=300, seed=1, folder=folder)
    found = fuzz_parser(options).findings.first.values()
    assert len(found) == 2
    for finding in found:
        assert finding.group.startswith("signal: SIG")
        assert repeat(load(file_of(finding, folder))) == (finding.group, finding.detail)


def test_a_corpus_and_a_dictionary_for_other_fuzzers(tmp_path: Path) -> None:
    fuzz_parser(Options(packets=1, corpus_out=tmp_path / "corpus"))
    written = {path.read_bytes() for path in (tmp_path / "corpus").iterdir()}
    assert written >= set(examples())
    words = (tmp_path / "corpus.dict").read_text().splitlines()
    assert all(re.fullmatch(r'\w+="(\\x[0-9a-f]{2})+"', word) for word in words)
    assert any(r'="\x4c\x49\x4f\x52"' in word for word in words), "the signature of a packet"
    assert from_files([tmp_path / "corpus"])
