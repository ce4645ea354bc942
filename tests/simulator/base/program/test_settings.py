"""Settings in a file: options on the command line take precedence, and impossible settings are reported by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program import settings
from mqproto.simulator.base.program.again import AGAIN
from mqproto.simulator.cli.cli import command_named
from mqproto.simulator.cli.service.command import CONFIGURED
from tests.simulator.typed import in_process

app = typer.Typer()


@app.command()
def node(
    topology: Annotated[str, typer.Argument(metavar="[TOPOLOGY]")] = "",
    count: Annotated[int, typer.Option("--count", min=1)] = 3,
    factor: float = 1.0,
    alone: Annotated[str, typer.Option("--name")] = "",
    queues: Annotated[list[str] | None, typer.Option("--queue")] = None,
    waypoints: Annotated[bool, typer.Option("--waypoints")] = False,
    secret: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Print the node's settings."""
    print((topology, count, factor, alone, queues, waypoints, secret))


command: Any = get_command(app)
GOOD = 'topology = "t"\ncount = 5\nfactor = 2\nname = "n"\nqueue = ["a", "b"]\nwaypoints = true\n'


def taken(tmp_path: Path, text: str, chosen: str = "") -> dict[str, Any]:
    file = tmp_path / "f.toml"
    file.write_text(text)
    with typer.Context(command) as context:
        return settings.read(settings.Chosen.of(f"{file}{chosen}"), command, context)


def test_each_setting_has_the_name_that_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = taken(tmp_path, f"[node]\n{GOOD}")
    with command.make_context("node", [], default_map=found) as context:
        command.invoke(context)
    assert capsys.readouterr().out == "('t', 5, 2.0, 'n', ['a', 'b'], True, False)\n"


def test_what_is_typed_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = taken(tmp_path, f"[node.x]\n{GOOD}[node.y]\n", "#x")
    typed = ["u", "--count", "7", "--queue", "c"]
    with command.make_context("node", typed, default_map=found) as context:
        command.invoke(context)
    assert capsys.readouterr().out == "('u', 7, 2.0, 'n', ['c'], True, False)\n"


@pytest.mark.parametrize(
    ("text", "chosen", "complaint"),
    [
        ("[node]\ncuont = 5", "", "[node] has 'cuont', and no such setting is known; did you mean 'count'?"),
        ("[node]\nsupervised = true", "", "[node] has 'supervised', and no such setting is known"),
        ("[node]\nwaypoints = 1", "", "[node]: waypoints = 1: write true or false"),
        ("[node]\ncount = true", "", "[node]: count = True: write a text or a number"),
        ("[node]\ncount = 'x'", "", "[node]: count = 'x': "),
        ("[node]\ncount = 0", "", "[node]: count = 0: "),
        ("[node]\nqueue = 'a'", "", "[node]: queue = 'a': write a list, [...]"),
        ("[node]\nqueue = [[]]", "", "[node]: queue = [[]]: write a text or a number"),
        ("[node.x]\n[node.y]", "", "has several [node]: name one of "),
        ("[node.x]", "#z", "has no [node.z]; there is "),
        ("[gateway]", "", "has no [node]"),
        ("[node]\ncount = 1\n[node.x]", "", "[node] has both settings (count) and [node.x]"),
        ("node = 1", "", "node is not a table: write [node]"),
        ("[node", "", "is not TOML: "),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, chosen: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        taken(tmp_path, text, chosen)
    assert complaint in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "f.toml"))


def test_a_file_is_checked_whole(tmp_path: Path) -> None:
    file = tmp_path / "mqproto.toml"
    file.write_text(
        '[node]\nname = "shop"\nwaypoints = true\n[gateway]\ntopology = "shop"\nnode = "shop"\nrate = 2.5\n'
        '[trigger.billing]\ntopology = "shop"\nqueue = "orders"\nurl = "http://127.0.0.1/"\n'
        '[console]\ntopology = "shop"\nlisten = "127.0.0.1:9170"\n'
    )
    done = in_process("config", "check", file)
    assert (done.status, done.out.split()[1::2]) == (0, ["node", "gateway", "trigger.billing", "console"])
    for text, complaint in (
        ('[trigger.billing]\ntopology = "shop"', f"{file}: [trigger.billing]: queue is needed"),
        ("[nodes]", f"{file}: nothing takes settings from [nodes]; did you mean 'node'?"),
        ("", f"{file} has no settings: write [node]; or [gateway]; or [trigger]; or [console]"),
    ):
        file.write_text(text)
        done = in_process("config", "check", file)
        assert (done.status, done.complaint) == (2, complaint)
    done = in_process("config", "check", tmp_path / "none")
    assert (done.status, done.complaint.endswith("No such file or directory; name a TOML file")) == (2, True)


G = '[gateway]\nnode = "sender"\n'
T = '[trigger]\nqueue = "orders"\n'
HTTP = 'url = "http://127.0.0.1/"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f'{G}listen = "127.0.0.1:99999"', "has no port from 1 to 65535"),
        (f'{G}listen = "0.0.0.0:80"', "gateway and trigger take --allow-remote"),
        (f'{G}listen = "foo"', "foo is not an IP address"),
        (f'{G}listen = "0.0.0.0:80"\nallow-remote = true', "type --tokens FILE"),
        (f'{G}history = "mysql://x"', "no document history is kept in mysql"),
        (f'{G}tokens = "/nonexistent"', "/nonexistent: No such file or directory"),
        (f'{G}key-header = "bad header"', "a header has letters, digits and -"),
        (f'{G}callback = "x"', "'x' is not a URL of HTTP"),
        (f'{G}tls-certificate = "/nonexistent"\ntls-key = "/nonexistent"', "/nonexistent: No such file"),
        (f'{G}metrics = "0.0.0.0"', "gateway and trigger take --allow-remote"),
        (f'{T}url = "ftp://x"', "is not a URL of HTTP"),
        (f'{T}url = ""', "say who is to be called"),
        (T, "say who is to be called"),
        (f'{T}{HTTP}call = "nosuch:f"', "say who is to be called"),
        (f'{T}call = "nosuch:f"', "'nosuch:f' is not available"),
        (f'{T}{HTTP}history = "mysql://x"', "no document history is kept in mysql"),
        ('[node]\nnode = "sender"\nqueue = ["x:foo"]', "--queue 'x:foo': write a queue's name"),
        (
            '[node]\nname = "other"\naddress = "127.9.8.7"\nmetrics = "0.0.0.0"',
            "gateway and trigger take --allow-remote",
        ),
        ('[node]\nname = "other"\nqueue = ["two+words"]', "a queue name cannot contain '+'"),
        ('[node]\nname = "ä"', "a node's name has up to 63 letters"),
        ('[node]\nname = "other"\naddress = "no.such.host.invalid"', "no computer is called no.such.host"),
        ('[node]\nnode = "sender"\nlog = "/nonexistent/n.log"', "/nonexistent/n.log cannot be opened"),
        ('[console]\nlisten = "0.0.0.0:9170"', "a console is for this machine"),
    ],
)
def test_what_a_program_refuses_at_its_start_a_check_refuses_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str
) -> None:
    monkeypatch.setattr(AGAIN, "heed", lambda *_: None)
    file = tmp_path / "f.toml"
    file.write_text(f"{text}\n", "utf-8")
    kind = text[1:].partition("]")[0]
    checked = in_process("config", "check", file)
    assert (checked.status, checked.complaint.startswith(f"{file}: [{kind}]: ")) == (2, True), checked.err
    assert complaint in checked.complaint
    assert [*tmp_path.iterdir()] == [file], "a check makes nothing"
    started = in_process(kind, "--config", file, "--directory", tmp_path / "stores")
    assert started.status == 2
    assert complaint in started.complaint


def test_what_may_stand_in_a_file_is_what_help_names() -> None:
    for kind in CONFIGURED:
        each: Any = command_named(kind).commands[kind]  # type: ignore[attr-defined]
        # A command keeps the names of its help from its first context, and others that run here see them.
        context = typer.Context(each, help_option_names=["-h", "--help"])
        known = dict(settings._parameters(each, context))
        assert len({id(one) for one in known.values()}) == len(known)
        typed = {one.name for one in each.get_params(context) if not getattr(one, "hidden", False)}
        assert {one.name for one in known.values()} == typed - {"_config", "help"}
        assert {"topology", "directory"} <= known.keys()
