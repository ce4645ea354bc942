"""Every command and every Python block of every README.md, and of docs/, runs and prints what the page shows.

A fenced block names its kind: `console` (a command after `$ `, its output below), `sh` (commands), `python` (a complete
program), `toml` and `json` (well-formed), `text` (a picture or an extract), `{toctree}`, `{eval-rst}`, `yaml`,
`dockerfile`, `c` and `python spark` (each only on one page, which has a test of its own). Any other block is an error,
so none is skipped by mistake.

The blocks of one README run in order, in a separate folder where the repository's files can be seen. In the output of a
command, `...` stands for any text. Commands for setup, and commands that run for long, are not run again here: `make`
goals that .ci/run calls, and the commands that ELSEWHERE lists with their tests.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.chromium import PROGRAM, chromium
from tests.conformance import ROOT, names_of_tests, summary
from tests.proportion import PRODUCT
from tests.simulator.forks import Forks
from tests.simulator.typed import MAIN, PREPARED

pytestmark = pytest.mark.early

COMMANDS: Final = Forks(
    *PREPARED, "mqproto.simulator.client", "mqproto.simulator.command.decoding", "hypothesis"
)
"""A process that has already imported the modules that most commands and programs of READMEs need."""
AS_ON_A_TERMINAL: Final = """
import os, sys
os.dup2(1, 2)
sys.stdout.reconfigure(line_buffering=True)
"""
"""Python code that joins standard output and standard error, with lines in the order in which they are written."""
STRICT: Final = """
import sys, warnings
warnings.simplefilter("error")
exec(sys.argv.pop(), {"__name__": "__main__"})
"""
PROGRAMS: Final = ("mqproto", "python", "python3")
"""The programs that a README may call, and that we run here."""
SETTING_UP: Final = (
    "git clone",
    "cd",
    "pip install",
    "python -m venv",
    "source",
    "apt-get install",
    "pre-commit install",
)
"""Commands that a reader runs once; .ci/run does something similar."""
WATCHED: Final = (
    "tests/captures/pipeline/run/test_watching.py::"
    "test_whenever_a_program_is_killed_or_fails_the_tables_come_to_be_those_of_one_run"
)
ELSEWHERE: Final[dict[str, str]] = {
    "mqproto crash": "tests/simulator/rig/test_crash.py::"
    "test_nothing_is_lost_though_every_node_is_killed_at_every_moment",
    **dict.fromkeys(
        [f"mqproto {each}" for each in ("explain", "pause", "resume", "purge", "return", "send", "receive")],
        "tests/simulator/cli/test_cli.py::test_what_the_readme_shows_of_a_stuck_message_is_what_the_commands_say",
    ),
    **dict.fromkeys(
        ["mqproto queue", "mqproto node --name shop --queue orders &"],
        "tests/simulator/cli/test_queues.py::test_what_the_readme_shows_of_a_node_alone_is_what_the_commands_say",
    ),
    **dict.fromkeys(
        [
            "export MQPROTO_TOPOLOGY=office",
            "export MQPROTO_TOPOLOGY=shop",
            "mqproto node --name office --address 10.9.0.2 --queue orders:transactional:strangers --log office.log &",
            "mqproto node --name shop --queue replies:transactional --queue notices --log shop.log &",
            "nft add",
        ],
        "tests/simulator/node/test_twomachines.py::"
        "test_what_the_readme_has_people_type_at_two_machines_brings_a_message_an_answer_and_acknowledgments",
    ),
    **dict.fromkeys(
        ["a block of yaml", "a block of dockerfile"],
        "tests/simulator/node/test_compose.py::"
        "test_what_the_page_has_people_run_beside_their_compose_file_brings_a_message_to_a_client_in_another_container",
    ),
    "a block of c": "tests/simulator/fuzz/parser/test_program.py::"
    "test_two_faults_that_end_it_by_one_signal_are_two_findings",
    "a block of python spark": "tests/captures/test_spark.py::"
    "test_the_program_of_the_readme_runs_in_ones_own_session_and_on_spark_connect",
    **dict.fromkeys(
        ["mqproto run", "mqproto kill", "mqproto restart", "mqproto top"],
        "tests/simulator/cli/test_running.py::test_the_story_of_start_is_what_the_commands_say",
    ),
    "mqproto peers": "tests/simulator/command/test_peers.py::"
    "test_what_the_readme_shows_of_peers_is_what_the_commands_say",
    **dict.fromkeys(
        ["mqproto gateway", "curl --data", "curl http://127.0.0.1:8080/queues/orders/messages/order-17"],
        "tests/simulator/command/test_edges.py::test_what_the_readme_shows_of_the_gateway_is_what_it_says",
    ),
    "mqproto demo --edges": "tests/simulator/rig/validation/test_demo.py::"
    "test_whatever_is_killed_each_message_is_processed_once_or_is_in_the_error_queue",
    "mqproto history": "tests/simulator/client/test_story.py::"
    "test_the_story_of_a_real_message_is_what_the_readme_shows_though_a_node_was_killed",
    "mqproto failed": "tests/simulator/edges/operators/test_reports.py::test_the_desk_of_the_readme",
    "mqproto erase": "tests/simulator/edges/operators/test_erasing.py::"
    "test_the_command_says_what_it_does_not_know",
    "mqproto audit": "tests/simulator/edges/operators/test_reports.py::test_the_audit_of_the_readme",
    "mqproto validate": "tests/simulator/rig/validation/test_validate.py::"
    "test_each_stage_is_reached_as_often_as_the_documents_say",
    "mqproto replay": "tests/simulator/replay/test_command.py::test_what_the_readme_shows_is_what_the_command_says",
    "openssl req": "tests/simulator/node/test_tls.py::"
    "test_the_topology_and_the_certificates_of_the_readme_serve",
    "mqproto trigger": "tests/simulator/edges/trigger/test_run.py::"
    "test_what_the_readme_shows_of_a_trigger_is_what_it_logs",
    "mqproto analyse captures/samples/gap-held.pcapng --out tables": "tests/simulator/command/test_analysis.py::"
    "test_bad_files_are_named_and_the_rest_is_in_the_tables",
    "mqproto analyse captures --out tables --watch": WATCHED,
    "dumpcap -i eth0 -f 'tcp port 1801' -b duration:60 -w captures/run.pcapng &": WATCHED,
    **dict.fromkeys(
        ["make strangers", "mqproto fuzz strangers"],
        "tests/simulator/fuzz/hostile/test_suite.py::test_honest_messages_come_through_attacks",
    ),
}
"""Commands that run for long or need nodes, each with the test that covers it (`tests/...py::test_name`) or a reason.
"""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its kind, its text, and the number of its first line."""

    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """One command, and its output according to the README; None if the README shows none."""

    text: str
    output: str | None
    line: int


def readmes() -> list[Path]:
    """Return the project's README.md, those of all its folders, and the pages of docs/."""
    folders = ("mqproto", "captures", "simulator", "tests")
    return [
        ROOT / "README.md",
        *sorted(path for name in folders for path in (ROOT / name).rglob("README.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


def blocks(markdown: str) -> Iterator[Block]:
    """Return the fenced blocks of a page, in order.

    Raises:
        ValueError: a fence is not closed.
    """
    lines = iter(enumerate(markdown.splitlines(), start=1))
    for number, line in lines:
        if opening := re.fullmatch(r"( *)(```+|~~~+) *([^`]*)", line):
            indent, fence, language = opening.groups()
            content = []
            for _, inner in lines:
                if inner.strip().startswith(fence) and not inner.strip().strip(fence[0]):
                    break
                content.append(inner.removeprefix(indent))
            else:
                raise ValueError(f"line {number}: the block is not closed")
            yield Block(language.strip(), "\n".join(content), number + 1)


def how_to(name: str, room: str = "how-to") -> str:
    """Return the page docs/ROOM/NAME.md."""
    return (ROOT / "docs" / room / f"{name}.md").read_text("utf-8")


def blocks_of(name: str, language: str, room: str = "how-to") -> list[Block]:
    """Return the blocks of one kind on the page docs/ROOM/NAME.md."""
    return [block for block in blocks(how_to(name, room)) if block.language == language]


def console_blocks(name: str, room: str = "how-to") -> list[list[Command]]:
    """Return the commands of each console block on the page docs/ROOM/NAME.md."""
    return [list(commands(block)) for block in blocks_of(name, "console", room)]


def commands(block: Block) -> Iterator[Command]:
    """Return the commands of a `console` or `sh` block; a line that ends in a backslash continues on the next.

    Raises:
        ValueError: a console block does not begin with a command.
    """
    text = re.sub(r"\\\n(?:> )?\s*", "", block.text)
    if block.language == "sh":
        for line in text.splitlines():
            if line.strip() and not line.startswith("#"):
                yield Command(line, None, block.line)
        return
    head, *rest = re.split(r"^\$ ", text, flags=re.MULTILINE)
    if head.strip() or not rest:
        raise ValueError(f"line {block.line}: a console block begins with `$ ` and a command")
    for part in rest:
        command, _, output = part.partition("\n")
        yield Command(command.strip(), output.strip() or None, block.line)


def covered(command: str) -> bool:
    """Return whether the command is run by .ci/run or by a test, or is part of setup.

    Raises:
        ValueError: it is none of these, and we do not know how to run it here.
    """
    command = command.partition("  #")[0].strip()
    if any(f"{command} ".startswith(f"{words} ") for words in (*SETTING_UP, *ELSEWHERE)):
        return True
    program, *arguments = shlex.split(command)
    if program == "make":
        goals = [argument for argument in arguments if "=" not in argument]
        steps = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
        if all(f"step {goal}" in steps or f"make {goal}" in ELSEWHERE for goal in goals) and goals:
            return True
        raise ValueError(f"`{command}`: neither a step of .ci/run nor in ELSEWHERE of test_readme.py")
    if program not in PROGRAMS:
        raise ValueError(f"`{command}`: test_readme.py does not know how to run {program}")
    return False


def shows(output: str, printed: str) -> bool:
    """Return whether the output matches the README.

    In the README, `...` matches any text, and white space at line ends is ignored.
    """
    tidy = ["\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (output, printed)]
    pattern = ".*".join(re.escape(part) for part in re.split(r"\.\.\.|…", tidy[0]))
    return re.fullmatch(pattern, tidy[1], flags=re.DOTALL) is not None


def typed(command: str) -> str:
    """Type a command as a reader would, and return its output.

    A command that only calls `mqproto` is forked from a process that has already imported its modules, because
    importing takes most of its time.

    Raises:
        ValueError: the command failed.
    """
    alone, _, expected = command.partition(" || test $? -eq ")
    if re.fullmatch(r"mqproto [^|&;<>$`]*", alone):
        return printed_by(MAIN, *shlex.split(alone)[1:], expected=int(expected or 0))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ValueError(f"exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def printed_by(script: str, *arguments: str, expected: int = 0) -> str:
    """Return the output of a Python script.

    Raises:
        ValueError: it ended with another status.
    """

    async def ended() -> tuple[int, bytes]:
        process = await COMMANDS.start(AS_ON_A_TERMINAL + script, *arguments)
        await process.stdin.aclose()
        printed = await process.stdout_until(None)
        await process.stdout.aclose()
        return await process.wait(), printed

    status, printed = trio.run(ended)
    if status != expected:
        raise ValueError(f"exit status {status}\n{printed.decode()}")
    return printed.decode()


def check(block: Block) -> None:
    """Run or check one block.

    Raises:
        ValueError: it does not run, prints something else, is malformed, or is of an unknown kind.
    """
    match block.language:
        case "console" | "sh":
            for command in commands(block):
                if not covered(command.text):
                    printed = typed(command.text)
                    if command.output is not None and not shows(command.output, printed):
                        raise ValueError(
                            f"`{command.text}` printed\n{printed}\nbut the README shows\n{command.output}"
                        )
        case "python":
            printed_by(STRICT, block.text)
        case "toml":
            tomllib.loads(block.text)
        case "json":
            json.loads(block.text)
        case "text" | "{toctree}" | "{eval-rst}":
            pass
        case "yaml" | "dockerfile" | "c" | "python spark":
            assert ELSEWHERE[f"a block of {block.language}"]
        case other:
            raise ValueError(
                f"{other!r} is not a kind of block that test_readme.py knows; its docstring lists them"
            )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the test in the place of a reader at a terminal: our .venv comes first on the PATH.

    The current folder has the repository's files; files that a command writes stay in that folder.
    """
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    # Where CI is set, hypothesis does not complain of a machine that is slow at drawing.
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "CI": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("readme", readmes(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_readme_shows_is_true(readme: Path) -> None:
    for block in blocks(readme.read_text("utf-8")):
        try:
            check(block)
        except ValueError as error:
            pytest.fail(f"{readme.relative_to(ROOT)}:{block.line}: {error}", pytrace=False)


def test_lines_of_pages_are_not_long_or_run_together_and_a_question_is_answered_in_500_words() -> None:
    for path in readmes():
        text = path.read_text("utf-8")
        prose = re.sub(r"^( *)(```+|~~~+).*?^ *\2$", "", text, flags=re.MULTILINE | re.DOTALL)
        assert [line for line in prose.splitlines() if len(line) > 120 and line[0] not in "|!"] == [], path
        assert re.findall(r"\S +#{2,} .*|.\n#{2,} .*|\n\n\|.*\n(?!\|[-:| ]+\|\n)", prose) == [], path
        assert path.parent.name != "how-to" or len(text.split()) <= 500, path


@pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: apt-get install chromium")
def test_the_search_lists_a_title_with_the_words_typed_first(tmp_path: Path) -> None:
    (tmp_path / "search.html").write_text(f"<script>{(ROOT / 'docs/scorer.js').read_text()}</script>")
    with chromium(tmp_path) as browser:
        browser.open(f"{(tmp_path / 'search.html').as_uri()}?q=where+is+my+message")
        scored = "['Where is my message?', 'A message'].map((title) => Scorer.score(['', title, , , 15]))"
        assert browser.evaluate(scored) == [35, 20]


def page(text: str) -> list[Block]:
    return list(blocks(textwrap.dedent(text)))


def test_the_front_page_counts_right_and_names_each_folder(request: pytest.FixtureRequest) -> None:
    """The number of tests only has to be right to within a tenth, and is checked only if all tests were collected."""
    page = (ROOT / "README.md").read_text("utf-8")
    assert f"[{len(list((ROOT / 'captures' / 'samples').glob('*.toml')))} samples]" in page
    assert re.findall(r"\d+ done, .+? later", page) == [summary().partition(": ")[2]] * 2
    assert [name for name in (*PRODUCT, "tests") if f"| `{name}/` |" not in page] == []
    assert re.findall(r"^## .*", page, re.MULTILINE)[-1] == "## Changes"
    [passed] = re.findall(r"^(\d+) passed in ", page, re.MULTILINE)
    collected = len(request.session.items)
    if {ROOT / "tests"} & {Path(argument).resolve() for argument in request.config.args}:
        assert abs(collected - int(passed)) < collected / 10


def test_blocks_are_found_with_their_kind_and_line_however_they_are_fenced() -> None:
    found = page("""
        Words.
        ```sh
        make test
        ```
        - a list
          ~~~~ python
          print("```")
          ~~~~
        ```
        ```
    """)
    assert found == [Block("sh", "make test", 4), Block("python", 'print("```")', 8), Block("", "", 11)]


def test_commands_are_told_from_what_they_print() -> None:
    [console, sh] = page(r"""
        ```console
        $ mqproto decode \
        >   frame.hex
        SessionAck 36 bytes

        $ mqproto probe 127.0.0.2
        ```
        ```sh
        # Once.
        make demo
        mqproto decode \
            frame.hex
        ```
    """)
    assert [(command.text, command.output) for command in commands(console)] == [
        ("mqproto decode frame.hex", "SessionAck 36 bytes"),
        ("mqproto probe 127.0.0.2", None),
    ]
    assert [command.text for command in commands(sh)] == ["make demo", "mqproto decode frame.hex"]


@pytest.mark.parametrize(
    "command", ["make demo", "make test  # some minutes", "git clone x", "mqproto crash"]
)
def test_commands_that_ci_or_a_reader_runs_once_are_not_run_again(command: str) -> None:
    assert covered(command)


def test_a_page_says_that_make_needs_a_clone_as_a_wheel_has_no_makefile() -> None:
    pages = {
        path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("[!w]*/*.md")
    }  # Not of why/.
    asking = {name for name, text in pages.items() if re.search(r"(`|^\$ |^)make\s[a-z]", text, re.MULTILINE)}
    assert asking
    assert not [name for name in asking if "clone" not in pages[name]]


@pytest.mark.parametrize("command", ["make no-such-goal", "make", "rm -rf .", "cdrecord"])
def test_a_command_that_nothing_covers_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match=re.escape(command)):
        covered(command)


def test_every_step_of_ci_is_a_goal_of_the_makefile_and_each_line_of_elsewhere_names_a_test_or_a_reason() -> (
    None
):
    goals = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    steps = set(re.findall(r"^step ([a-z]+)", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE))
    assert {"lint", "test", "demo", "strangers"} <= steps <= goals
    assert {command.split()[1] for command in ELSEWHERE if command.startswith("make ")} <= goals
    assert {name for name in ELSEWHERE.values() if "::" in name} <= names_of_tests()


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (Block("console", "$ python3 -c 'print(6 * 7)'\n41", 1), "but the README shows"),
        (Block("console", "$ python3 -c 'raise SystemExit(3)' | cat", 1), "exit status 3"),
        (Block("console", "42", 1), "begins with"),
        (Block("sh", "frobnicate", 1), "does not know"),
        (Block("python", "assert 6 * 7 == 41", 1), "AssertionError"),
        (Block("python", "import warnings; warnings.warn('old')", 1), "old"),
        (Block("toml", "a = ", 1), "value"),
        (Block("json", "{", 1), "property name"),
        (Block("", "make test", 1), "not a kind of block"),
        (Block("pyhton", "1", 1), "not a kind of block"),
    ],
)
def test_a_block_that_is_not_true_is_found(block: Block, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(block)


@pytest.mark.parametrize(
    "block",
    [
        Block("console", "$ python3 -c 'print(6 * 7, 0.25)'\n42 ...", 1),
        Block("console", "$ make demo\nwhatever it printed", 1),
        Block(
            "sh",
            "python3 -c \"open('new', 'w').write('x')\"\npython3 -c \"open('new'); open('pyproject.toml')\"",
            1,
        ),
        Block("python", "import mqproto", 1),
        Block("toml", "[node]\nname = 'a'", 1),
        Block("json", "{}", 1),
        Block("text", "a -> b", 1),
    ],
)
def test_a_block_that_is_true_passes(block: Block) -> None:
    check(block)
    assert not (ROOT / "new").exists()
