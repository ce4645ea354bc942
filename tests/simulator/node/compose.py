"""The services of docs/how-to/compose.md as processes, each in a separate network namespace.

python -m tests.simulator.node.compose FOLDER

It runs in a namespace in which it may do everything (test_compose.py). FOLDER stands for the disk: a service's
`/var/lib/mqproto` or `/run/mqproto` is a folder in it, one for each volume.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.conformance import ROOT
from tests.test_readme import blocks, how_to

PAGE: Final = how_to("compose")
STATE, RUNTIME, SOCKETS = "/var/lib/mqproto", "/run", "/run/mqproto"
ADDRESSES: Final = {"shop": "10.8.0.2", "depot": "10.8.0.3"}
PATIENCE_S: Final = 120
READ_ONLY: Final = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
NO_RIGHTS: Final = ("--bounding-set", "-dac_override,-dac_read_search")
"""Options that take away the rights with which root may enter folders of other users."""


def block(language: str) -> str:
    """Return the only block in this language on the page."""
    [found] = [each.text for each in blocks(PAGE) if each.language == language]
    return found


def read_yaml(text: str) -> Any:
    """Read YAML of the kind that the page uses: mappings, lists of plain texts, and lists in brackets.

    Raises:
        ValueError: the text has something else.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    value, rest = _value(lines, 0)
    if rest:
        raise ValueError(f"{rest[0]!r} is indented otherwise than what stands before it")
    return value


def _value(lines: list[str], indent: int) -> tuple[Any, list[str]]:
    items: list[str] = []
    mapping: dict[str, Any] = {}
    while lines and (depth := len(lines[0]) - len(lines[0].lstrip(" "))) >= indent:
        line, lines = lines[0].strip(), lines[1:]
        if depth > indent:
            raise ValueError(f"{line!r} is indented further than what stands before it")
        if line.startswith("- "):
            items.append(line[2:])
        elif found := re.fullmatch(r"([\w-]+):(?: (.+))?", line):
            key, said = found.groups()
            if key in mapping:
                raise ValueError(f"{key} is there twice")
            if said is not None:
                mapping[key] = re.findall(r'"([^"]*)"', said) if said.startswith("[") else said
            else:
                inner = len(lines[0]) - len(lines[0].lstrip(" ")) if lines else 0
                mapping[key], lines = _value(lines, inner) if inner > indent else (None, lines)
        else:
            raise ValueError(f"{line!r} is not a line of a mapping or a list")
    if items and mapping:
        raise ValueError(f"{items[0]!r} stands among keys")
    return items or mapping, lines


def image_environment() -> dict[str, str]:
    """Return the variables set by the Dockerfile's ENV."""
    [line] = [line for line in block("dockerfile").splitlines() if line.startswith("ENV ")]
    return dict(word.split("=", 1) for word in shlex.split(line)[1:])


class Network:
    """A network namespace that exists as long as a separate process holds it."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"],
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n"
        self.inside = ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net")

    def connect(self, name: str) -> None:
        """Give the namespace an end of the wire, and an address."""
        run("ip", "link", "set", f"to-{name}", "netns", str(self._holder.pid))
        run(*self.inside, "ip", "address", "add", f"{ADDRESSES[name]}/24", "dev", f"to-{name}")
        run(*self.inside, "ip", "link", "set", f"to-{name}", "up")

    def end(self) -> None:
        self._holder.kill()
        self._holder.wait()


class Service:
    """One service, set up like its container: with its network, its environment, its disk and its working directory."""

    def __init__(self, service: dict[str, Any], folder: Path, network: Network) -> None:
        self.home = folder / f"home-{len([*folder.iterdir()])}"
        self.home.mkdir()
        self.sockets = self.home / "run" / "mqproto"
        self._inside = [*network.inside]
        self._command = shlex.split(service["command"])
        self._healthcheck = service.get("healthcheck", {}).get("test", ["CMD", "mqproto", "queues"])[1:]
        for volume in service["volumes"]:
            source, target, *mode = volume.split(":")
            if target == SOCKETS:
                self.sockets = folder / source / "mqproto"
            else:
                assert target == STATE, volume
                store = folder / source
            if mode == ["ro"]:
                self._inside += ["unshare", "-m", "sh", "-c", READ_ONLY, str(store)]
        for place in (store, self.sockets):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {
            "PATH": path,
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8",
        }
        self._environment |= image_environment() | (service.get("environment") or {})
        assert (self._environment["MQPROTO_DIRECTORY"], self._environment["XDG_RUNTIME_DIR"]) == (
            STATE,
            RUNTIME,
        )
        self._environment |= {"MQPROTO_DIRECTORY": str(store), "XDG_RUNTIME_DIR": str(self.sockets.parent)}

    def start(self) -> subprocess.Popen[bytes]:
        """Start the service's command, as its container would."""
        with (self.home / "log").open("wb") as log:
            command = [*self._inside, *self._command]
            return subprocess.Popen(command, cwd=self.home, env=self._environment, stdout=log, stderr=log)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run another command in the service's container; without arguments, run the service's own command."""
        return subprocess.run(
            [*self._inside, *(command or self._command)],
            cwd=self.home, env=self._environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip

    def is_healthy(self) -> bool:
        """Run Docker's health check; return whether it succeeds."""
        return self.run(*self._healthcheck).returncode == 0

    def until_healthy(self) -> subprocess.Popen[bytes]:
        """Start the service, and repeat Docker's health check until it succeeds."""
        process = self.start()
        give_up_s = time.monotonic() + PATIENCE_S
        while not self.is_healthy():
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise SystemExit(f"it is not healthy:\n{(self.home / 'log').read_text()}")
        return process


def run(*command: str) -> None:
    """Run a command that has to succeed."""
    subprocess.run(command, check=True)


def typed(line: str, services: dict[str, Service]) -> str:
    """Return the output of one of the page's `docker compose` commands.

    Raises:
        SystemExit: the command failed.
    """
    docker, compose, verb, service, *command = shlex.split(line)
    assert (docker, compose) == ("docker", "compose")
    assert verb in ("exec", "run"), line
    assert bool(command) == (verb == "exec"), line
    done = services[service].run(*command)
    if done.returncode:
        raise SystemExit(f"$ {line}\n{done.stdout}{done.stderr}")
    return done.stdout


def walk(services: dict[str, Service]) -> None:
    """Follow the commands on the page, and check its other statements about clients, users and restarts."""
    up, *others = next(each for each in blocks(PAGE) if each.language == "text").text.splitlines()
    nodes = {name: services[name].until_healthy() for name in shlex.split(up)[5:]}
    try:
        send, receive, explain = (typed(line, services) for line in others)
        expect(re.fullmatch(r"[0-9A-F-]{36}\\[0-9]+\n", send) is not None, send)
        expect(receive == "hello\n", receive)
        expect(bool(explain), "it says something, and has status 0")

        # A direct name for the Docker host is one for whoever receives it.
        sent = typed("docker compose exec depot mqproto send 'DIRECT=TCP:10.8.0.2\\private$\\orders' --transactional"
                     " --body again", services)  # fmt: skip
        expect(typed("docker compose run worker", services) == "again\n", sent)

        sockets = services["shop"].sockets
        sockets.chmod(0)
        other = services["worker"].run("setpriv", *NO_RIGHTS, "mqproto", "queues")
        sockets.chmod(0o700)
        expect(other.returncode == 2 and "another user's" in other.stderr, f"{other}")

        nodes["shop"].terminate()
        expect(nodes["shop"].wait(PATIENCE_S) == 0, "a node that is told to stop ends by itself")
        expect(not services["shop"].is_healthy(), "a node that does not run is not healthy")
        nodes["shop"] = services["shop"].until_healthy()
    finally:
        for node in nodes.values():
            node.terminate()
            node.wait()


def expect(holds: bool, said: str) -> None:
    """Check that something is as the page says.

    Raises:
        SystemExit: it is not as the page says.
    """
    if not holds:
        raise SystemExit(f"the page says otherwise: {said}")


def main(folder: Path) -> None:
    """Do everything, in a namespace that has no network yet."""
    hosts = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    run("ip", "link", "add", "to-shop", "type", "veth", "peer", "name", "to-depot")
    declared = read_yaml(block("yaml"))["services"]
    networks: dict[str, Network] = {}
    try:
        for name in declared:
            networks[name] = Network()
        for name in ADDRESSES:
            networks[name].connect(name)
        walk({name: Service(service, folder, networks[name]) for name, service in declared.items()})
    finally:
        for network in networks.values():
            network.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
