"""Two machines on one machine: each is a namespace, and there is a wire between the two.

python -m tests.simulator.node.twomachines FOLDER

Each machine runs its own commands from docs/how-to/two-machines.md. It has a firewall that blocks all traffic in both
directions, except what its own commands open. This program runs in namespaces in which it may do everything
(test_twomachines.py). FOLDER then has the machines' home folders.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.test_readme import blocks, commands, how_to, shows

ADDRESSES: Final = {"shop": "10.9.0.1", "office": "10.9.0.2"}
CALLS_OUT: Final = ("shop", "nft add rule inet filter output tcp dport 1801 accept")
"""A machine, and a command that makes its firewall also limit outgoing connections.

docs/how-to/ports.md describes this in words.
"""
FIREWALL: Final = """
table inet filter {
    chain input { type filter hook input priority 0; policy drop; iif lo accept; ct state established accept; }
    chain output { type filter hook output priority 0; policy drop; oif lo accept; ct state established accept; }
}
"""
END: Final = "that was all: "
READY: Final = "ready "
"""The beginning of the line that a node in the background prints once it has started."""
PASSES: Final = "mqproto explain "
"""The beginning of a command whose report about a connection is true only for some seconds, but is soon true again.

On a busy machine, the first look comes too late.
"""
LOOKS: Final = 40
IDENTIFIER: Final = re.compile(r"[0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}|(?<=\\)[0-9]{1,10}\b")


class Machine:
    """A shell on a machine; it remembers what was typed before."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        home = folder / name
        home.mkdir()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._shell = subprocess.Popen(
            ["unshare", "-n", "bash"],
            cwd=home,
            env={"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def connect(self) -> None:
        """Give the machine its end of the wire, an address, and its firewall."""
        self.type("true")  # From here on it is in a namespace of its own.
        run("ip", "link", "set", f"to-{self.name}", "netns", str(self._shell.pid))
        self.type("ip link set lo up")
        self.type(f"ip address add {ADDRESSES[self.name]}/24 dev to-{self.name}")
        self.type(f"ip link set to-{self.name} up")
        self.type(f"nft -f - <<'EOF'\n{FIREWALL}\nEOF")

    def type(self, command: str) -> str:
        """Return the output of a command; for one in the background, the output until it is ready.

        Raises:
            SystemExit: the command failed.
        """
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        print(f'{command}\necho "{END}$?"', file=self._shell.stdin, flush=True)
        printed = ""
        wanted = {END, READY} if command.endswith("&") else {END}
        while wanted:
            line = self._shell.stdout.readline()
            wanted -= {word for word in wanted if line.startswith(word)}
            if not line or (line.startswith(END) and line != f"{END}0\n"):
                raise SystemExit(f"{self.name}$ {command}\n{printed}{line}")
            if not line.startswith(END):
                printed += line
        return printed

    def switch_off(self) -> None:
        """Stop the machine's node, and then the shell."""
        self._shell.communicate("kill $(jobs -p)\nwait\n")


def run(*command: str) -> None:
    """Run a command that has to succeed."""
    subprocess.run(command, check=True)


def walk(machines: dict[str, Machine]) -> None:
    """Type the commands of the README, and check that each prints what the README shows.

    Identifiers differ each time: each identifier in the README stands for one printed identifier, the same everywhere.

    Raises:
        SystemExit: a command prints something else.
    """
    text = how_to("two-machines")
    lines = text.splitlines()
    known: dict[str, str] = {}

    def as_it_is(shown: str) -> str:
        return IDENTIFIER.sub(lambda found: known.get(found[0], found[0]), shown)

    for block in blocks(text):
        named = re.findall(r"[Oo]n `(\w+)`", "\n".join(lines[: block.line]))
        machine = machines[named[-1]]
        for command in commands(block):
            shown = command.output or ""
            for _ in range(LOOKS if command.text.startswith(PASSES) else 1):
                printed = machine.type(as_it_is(command.text))
                for word, found in zip(IDENTIFIER.findall(shown), IDENTIFIER.findall(printed), strict=False):
                    known.setdefault(word, found)
                if shows(as_it_is(shown), printed):
                    break
            else:
                raise SystemExit(f"{machine.name}$ {command.text}\n{printed}but the README shows\n{shown}")


def main(folder: Path) -> None:
    """Follow the page, in a namespace that has no network yet."""
    (folder / "hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    )
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    run("ip", "link", "add", "to-shop", "type", "veth", "peer", "name", "to-office")
    machines = {name: Machine(name, folder) for name in ADDRESSES}
    try:
        for machine in machines.values():
            machine.connect()
        caller, opens = CALLS_OUT
        machines[caller].type(opens)
        walk(machines)
    finally:
        for machine in machines.values():
            machine.switch_off()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
