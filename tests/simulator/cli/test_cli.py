"""The command as a person meets it: its output and how it ends, before anything runs and when things go wrong."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, app, run_command
from mqproto.simulator.client import talk
from mqproto.simulator.topology import load
from mqproto.simulator.topology.places import store_path
from mqproto.wire import TransactionHeader, encode_packet
from tests.bench.codec import example
from tests.conformance import ROOT
from tests.simulator.typed import (
    COMMAND,
    TIMEOUT_S,
    Done,
    eventually,
    in_process,
    mqproto,
    node,
    topology_file,
)
from tests.test_readme import Command, console_blocks, shows

A_GUID = "963EBEB9-8A2F-504A-9728-78C61096BF80"


@pytest.mark.parametrize(
    "command",
    [
        ("queues",),
        ("explain",),
        ("explain", "orders"),
        ("explain", "orders", "--node", "sender"),
        ("pause", "orders"),
        ("resume", "orders", "--node", "sender"),
        ("purge", "orders"),
        ("queue", "create", r"destination\private$\more"),
        ("queue", "set", "orders", "--journal"),
        ("queue", "delete", "orders"),
        ("queue", "list"),
        ("return", r"sender\deadxact"),
        ("send", r"destination\orders", "-b", "x"),
        ("receive", "orders"),
    ],
)
def test_a_node_that_does_not_run_is_said_with_the_command_that_starts_it(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    done = in_process(*command, "-d", tmp_path)
    assert done.status == FINDING
    assert re.search(f"mqproto (run|node [a-z]+) --directory {tmp_path}", done.complaint)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[node.a", "TOML"),
        ("", "no nodes"),
        ("[node.a]\nadress = 'x'", "did you mean 'address'"),
        ("[node.a]\naddress = '192.0.2.1:1801'", "192.0.2.1"),
    ],
)
def test_a_topology_that_cannot_be_names_the_file_and_the_place(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    done = in_process("run", "-t", path, "-d", tmp_path / "stores")
    assert done.status in (MISUSE, FINDING)
    assert words in done.complaint


@pytest.mark.long
def test_a_store_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    file = topology_file(tmp_path)
    path = store_path(tmp_path, "sender")
    path.write_bytes(b"a letter to my mother, which must not be overwritten" * 100)
    before = path.read_bytes()
    done = mqproto("node", "sender", "-t", file, "-d", tmp_path)
    assert done.status == FINDING
    assert "sender.sqlite" in done.complaint
    assert path.read_bytes() == before


@pytest.mark.long
def test_a_disk_without_room_is_said_to_the_sender_and_the_node_lives_on(tmp_path: Path) -> None:
    file = topology_file(tmp_path, "pair")
    # A limit on the size of files is what a disk looks like that has no room for a reserve, and needs no root.
    with node(file, tmp_path, limit_bytes=1_000_000) as limited:
        refused = send_to(file, tmp_path, b"x" * 1_000)
        assert refused.status == MISUSE
        assert "the disk is full: make room there, or receive or purge something" in refused.err
        explained = mqproto("explain", "--topology", file, "--directory", tmp_path).out
        assert "the disk of sender is full: it takes no message that has to be on disk" in explained
        limited.terminate()
        assert limited.wait(TIMEOUT_S) == DONE
    with node(file, tmp_path):
        assert send_to(file, tmp_path, b"x" * 1_000).status == DONE


def send_to(file: Path, directory: Path, body: bytes) -> Done:
    return in_process("send", r"destination\orders", "-", "-t", file, "-d", directory, stdin=body)


@pytest.mark.long
def test_what_the_readme_shows_of_sending_once_is_what_the_commands_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = topology_file(tmp_path)
    monkeypatch.setenv("MQPROTO_TOPOLOGY", str(file))
    monkeypatch.setenv("MQPROTO_DIRECTORY", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("first line\nsecond line\n")
    [typed] = console_blocks("send-exactly-once")
    with node(file, tmp_path), node(file, tmp_path, "intermediate"), node(file, tmp_path, "destination"):
        there: dict[str, str] = {}
        for command in typed:
            done = in_process(*shlex.split(command.text)[1:])
            there |= identifiers(done.out, command.output)
            printed = done.out + done.err
            for here, shown in there.items():
                printed = printed.replace(here, shown)
            assert printed == f"{command.output}\n"


@pytest.mark.long
@pytest.mark.parametrize("page", ["properties-of-a-message", "net-and-com"])
def test_what_the_readme_shows_of_messages_is_what_the_commands_say(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = topology_file(tmp_path)
    monkeypatch.setenv("MQPROTO_TOPOLOGY", str(file))
    monkeypatch.setenv("MQPROTO_DIRECTORY", str(tmp_path))
    [typed] = console_blocks(page)
    with node(file, tmp_path, "destination"):
        there: dict[str, str] = {}
        for command in typed:
            done = in_process(*shlex.split(command.text)[1:])
            there |= identifiers(done.out, command.output)
            printed = done.out + done.err
            for here, known in there.items():
                printed = printed.replace(here.replace("\\", "\\\\"), known.replace("\\", "\\\\"))
                printed = printed.replace(here, known)
            assert shows(command.output or "", printed), printed


@pytest.mark.long
def test_what_the_readme_shows_of_a_stuck_message_is_what_the_commands_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = topology_file(tmp_path)
    monkeypatch.setenv("MQPROTO_TOPOLOGY", str(file))
    monkeypatch.setenv("MQPROTO_DIRECTORY", str(tmp_path))

    def as_in_the_readme(printed: str) -> str:
        for name, there in load("three-node").nodes.items():
            here = load(file).nodes[name]
            printed = printed.replace(f"{here.host}:{here.port}", f"{there.host}:{there.port}")
        return without_times(printed.replace(str(file), "three-node"))

    here: dict[str, str] = {}

    def type_in(command: Command) -> None:
        shown = without_times(f"{command.output}\n")
        _, name, *arguments = shlex.split(command.text)
        arguments = [here.get(each, each) for each in arguments]

        def printed() -> str:
            done = in_process(name, *arguments)
            here.update(identifiers(command.output, done.out))
            return as_in_the_readme(done.out + done.err)

        if name == "explain":  # It may look a moment too early.
            eventually(
                lambda: printed() == shown, lambda: f"{printed()}is not what the README shows:\n{shown}"
            )
        else:
            assert printed() == shown

    def receive_hello() -> None:
        assert in_process("receive", "orders", "--timeout", "60").out == "hello\n"
        # The consumer is ahead of the OrderAck.
        eventually(lambda: "sender to" not in in_process("explain").out, lambda: in_process("explain").out)

    [stuck], [dead] = console_blocks("stuck-message"), console_blocks("pause-purge-return")
    with node(file, tmp_path), node(file, tmp_path, "intermediate"):
        with node(file, tmp_path, "destination"):
            in_process("send", "orders", "--body", "hello")
            receive_hello()
        in_process("send", "orders", "--body", "hello", "--label", "second")
        for command in stuck:
            type_in(command)
        with node(file, tmp_path, "destination"):
            receive_hello()
            for command in dead:
                type_in(command)


def identifiers(text: str | None, other: str | None) -> dict[str, str]:
    """Return a dict from a text's message identifiers to those of the same messages in another text.

    The identifiers of each text begin at a random number.
    """
    found = (
        re.findall(r"[0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}\\\d+", each or "") for each in (text, other)
    )
    return dict(zip(*found, strict=False))


def without_times(text: str) -> str:
    """Return a text in which figures that depend on the time are replaced."""
    figures = re.sub(r"\d+(?:[.,]\d+)*", "#", text)
    spans = re.sub(r"# (?:min|h|d) # (?:s|min|h)|# (?:min|h|d)\b", "# s", figures)
    return re.sub(r"(try|again) now", r"\1 in # s", spans)


@pytest.mark.long
def test_decode_shows_a_packet_given_as_hex_as_a_file_or_on_stdin(tmp_path: Path) -> None:
    packet = encode_packet(example(100))
    (tmp_path / "packet").write_bytes(packet)
    shown = [
        in_process("decode", packet.hex()),
        in_process("decode", tmp_path / "packet"),
        mqproto("decode", "-", stdin=packet),
        in_process("decode", "-", stdin=packet.hex(" ", 2).encode()),
        in_process("decode", "-", stdin=" ".join(f"0x{byte:02x}" for byte in packet).encode()),
    ]
    assert len({(done.status, done.out) for done in shown}) == 1
    assert shown[0].status == DONE
    assert "transactional UserMessage" in shown[0].out
    assert "transaction.tx_sequence_number" in shown[0].out
    assert json.loads(mqproto("decode", "--json", packet.hex()).out)["valid"] is True


def test_decode_of_a_broken_packet_says_where_and_is_a_finding() -> None:
    packet = bytearray(encode_packet(example(100)))
    packet[8] += 4
    done = mqproto("decode", packet.hex())
    assert done.status == FINDING
    assert "base.packet_size at byte 8" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("decode",), "Missing argument"),
        (("decode", "hello"), "neither a file nor bytes"),
        (("decode", "123"), "odd number"),
        (("decode", "nowhere.pcap"), "there is no such file"),
        (("decode", "/"), "is a folder"),
        (("keys", "make", "--frobnicate"), "see mqproto keys make --help"),
        (("run", "three-node"), "a topology is named with --topology three-node; see mqproto run --help"),
        (("gateway", "shop.toml", "sender"), "a topology is named with --topology shop.toml; see"),
        (("run", "--topology=shop.toml", "all"), "extra argument(s) (all); see mqproto run --help"),
        (("node", "sendr"), "did you mean 'sender'"),
        (("run", "-t", "three-nodes"), "did you mean 'three-node'"),
        (("demo", "--input", "/nowhere"), "/nowhere"),
        (("demo", "--count", "1", "--capture", "/nowhere/x"), "/nowhere/x"),
        (
            ("send", "q", "-b", "x", "--correlation-id", "7"),
            "--correlation-id '7': write a message's identifier",
        ),
        (
            ("send", "q", "-b", "x", "--correlation-id", rf"{A_GUID}\4294967296"),
            "write a message's identifier",
        ),
        (("send", "q", "-b", "x", "--correlation-id", 39 * "0"), "or 20 bytes as 40 hexadecimal digits"),
        (
            ("send", "q", "-b", "x", "--sender-id", "administrator"),
            "'administrator' is not a SID: write S-1-",
        ),
        (("send", "q", "-b", "x", "--extension", "x", "--extension-file", "y"), "give one extension"),
        (("send", "q", "-b", "x", "--extension", "x", "--header", "a: b"), "or --header, which makes one"),
        (("send", "q", "-b", "x", "--header", "traceparent"), "--header 'traceparent': write NAME: VALUE"),
        (
            ("send", "q", "-b", "x", "--extension-file", "/nowhere"),
            "/nowhere: No such file or directory; name a file",
        ),
        (
            ("send", "q", "-b", "x", "--extension-file", "/dev/zero"),
            "the extension is too long: a message carries",
        ),
        (
            ("send", "q", "--file", "/dev/zero"),
            "the body is too long: a message carries at most 4,192,256 bytes",
        ),
    ],
)
def test_misuse_is_one_line_with_what_to_do(
    arguments: tuple[str, ...], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status = run_command(list(arguments))
    out, err = capfd.readouterr()
    done = Done(status, out, err)
    assert words in done.complaint
    assert (done.status, done.out) == (MISUSE, "")


FIRST = {"peers": "show", "failed": "list"}
"""Groups of commands, and the command that each group's name stands for by itself."""


@pytest.mark.parametrize("group", sorted({str(group.name) for group in app.registered_groups} - {*FIRST}))
def test_a_group_alone_shows_its_help(group: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command([group]) == MISUSE
    out, err = capfd.readouterr()
    assert (out, err.split()[:3]) == ("", ["Usage:", "mqproto", group])
    assert run_command([group, "--help"]) == DONE
    assert capfd.readouterr().out == err


@pytest.mark.parametrize("typed", ["peers", "peers --json", "failed", "failed --json"])
def test_these_groups_mean_their_first_command(
    typed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    group, *options = typed.split()
    place = [*options, "-d", str(tmp_path)]
    statuses = [run_command([group, *first, *place]) for first in ([], [FIRST[group]])]
    out = capfd.readouterr().out
    assert statuses[0] == statuses[1] != MISUSE
    assert out[: len(out) // 2] == out[len(out) // 2 :] != ""


def test_a_word_that_is_no_command_is_the_first_ones_only_if_it_takes_words(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["failed", "lst"]) == MISUSE
    assert "No such command 'lst'" in capfd.readouterr().err
    assert run_command(["peers", "nobody", "-t", "nowhere.toml"]) != DONE
    assert "No such command" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("url", "has_one"),
    [
        ("postgresql://u:secret@127.0.0.1:1/db", True),
        ("postgresql+psycopg://u:secret@127.0.0.1:1/db", True),
        ("postgresql://u@127.0.0.1:1/db?connect_timeout=2&password=secret", True),
        ("postgresql://u@127.0.0.1:1/db?application_name=a:b@c", False),
        ("postgresql+psycopg://u@127.0.0.1:1/db", False),
    ],
)
@pytest.mark.parametrize("joined", [False, True])
def test_who_types_a_password_hears_that_others_see_it_and_what_works(
    url: str, has_one: bool, joined: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    typed = [f"--history={url}"] if joined else ["--history", url]
    run_command(["failed", "list", *typed])
    said = capfd.readouterr().err
    assert (
        "leave it out, and write a line HOST:PORT:DATABASE:USER:PASSWORD into ~/.pgpass" in said
    ) is has_one
    assert "secret" not in said


def test_the_command_alone_shows_what_there_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command([]) == MISUSE
    assert run_command(["--help"]) == DONE
    out, err = capfd.readouterr()
    for command in (
        "demo", "crash", "run", "node", "send", "receive", "peek", "queues", "decode", "probe",
    ):  # fmt: skip
        assert f"\n  {command} " in out
        assert f"\n  {command} " in err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ZeroDivisionError("division by zero"), "a bug in mqproto: ZeroDivisionError"),
        (OSError(5, "Input/output error", "x.log"), "x.log: Input/output error"),
        (OSError(13, "Not you", "x.log"), "x.log: Not you; let this user in there, or name another place"),
        (OSError(28, "It is full", "x.log"), "x.log: It is full; make room there, or name another place"),
        (OSError(30, "No writing", "x.log"), "x.log: No writing; name another place"),
        (OSError("S3 error  \n \x1b[31m↳\x1b[0m GET\n ↳ refused\n"), "S3 error: GET: refused; for where"),
        (ExceptionGroup("", [ValueError("inner")]), "ValueError: inner"),
    ],
)
def test_even_a_bug_is_one_line_unless_its_traceback_is_asked_for(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mqproto.simulator.command.show.read_source", raising(error))
    monkeypatch.delenv("MQPROTO_DEBUG", raising=False)
    assert run_command(["decode", "00"]) == FINDING
    out, err = capfd.readouterr()
    assert words in Done(FINDING, out, err).complaint
    assert ("MQPROTO_DEBUG=1" in err) is ("name another place" not in words)
    monkeypatch.setenv("MQPROTO_DEBUG", "1")
    with pytest.raises(type(error)):
        run_command(["decode", "00"])


def raising(error: Exception) -> Callable[[str], bytes]:
    def read_source(_: str) -> bytes:
        raise error

    return read_source


def test_a_reader_who_has_had_enough_is_no_error() -> None:
    packet = encode_packet(example(100)).hex()
    command = f"{' '.join(COMMAND)} decode {packet} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (DONE, b"")


def test_on_a_terminal_a_body_that_is_no_text_is_shown_with_escapes() -> None:
    assert talk._on_a_terminal(b"a\tb\x1b[2J\xff\xc3\xb6") == b"a\tb\\x1b[2J\\xff\xc3\xb6"


def test_the_example_of_the_benchmarks_is_transactional() -> None:
    assert isinstance(example().transaction, TransactionHeader)


@pytest.mark.parametrize("command", ["erase", "history"])
def test_an_empty_text_names_no_message(command: str, tmp_path: Path) -> None:
    done = in_process(command, "", "-d", tmp_path)
    assert done.status == MISUSE
    assert done.complaint.startswith("an empty text names no message")


WRONG = (
    "analyse nowhere --out made",
    "analyse {capture} nowhere/*.pcapng --out made",
    "analyse {capture} --out made --topology nope",
    "analyse {capture} --out made --keys nowhere",
    "analyse {capture} --out made --conf x",
    "decode nowhere {capture} --tables made",
    "report nowhere",
    "tables nowhere",
    "explain orders --topology nope",
    "history x --topology nope",
    "audit --topology nope",
    "failed list --topology nope",
    "failed show x --topology nope",
    "failed retry x --topology nope",
    "failed resolve x --topology nope",
    "erase x --topology nope",
    "trigger orders",
    "trigger orders --topology nope --url http://127.0.0.1:9/",
    "gateway sender --topology nope",
    "console --topology nope",
    "queues --topology nope",
    "top --topology nope",
    "queue export --topology nope",
    "replay nowhere --to 127.0.0.1:9",
)
SLOW = "sqlalchemy", "httpx", "pyarrow", "numpy", "deltalake", "duckdb", "pyspark", "mqproto.simulator.world"
"""Modules that take a tenth of a second or more to import."""
TRIAL = """
import sys
from mqproto.simulator.cli.cli import run_command

capture, slow, *wrong = sys.argv[1:]
for typed in wrong:
    print(run_command(typed.format(capture=capture).split()), *(slow for slow in slow.split() if slow in sys.modules))
"""


@pytest.mark.long
def test_a_wrong_argument_is_answered_before_anything_is_imported_that_takes_long(tmp_path: Path) -> None:
    """The list of imported modules is the same on every machine; their import times are not."""
    capture = ROOT / "captures/samples/window.pcapng"
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, str(capture), " ".join(SLOW), *WRONG],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    statuses = dict(zip(WRONG, done.stdout.splitlines(), strict=True))
    finds = {"report nowhere", "tables nowhere"}
    assert statuses == {typed: str(FINDING if typed in finds else MISUSE) for typed in WRONG}
    assert all(line.startswith("mqproto: ") for line in done.stderr.splitlines()), done.stderr
    assert len(done.stderr.splitlines()) == len(WRONG), "each is one line"
    assert [*tmp_path.iterdir()] == []
