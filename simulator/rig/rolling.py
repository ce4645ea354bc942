"""Keys in a crash run: protects a topology, and replaces its nodes' keys while they die, as an operator would.

Each node gets keys, and the queues accept only encrypted and signed messages. Then the keys of one node after the
other are replaced, by the command that people type, whether the nodes run, are down or start. Messages on their way are
still encrypted with the old keys and signed with their certificates.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import UsageError
from mqproto.queues.protection import Protection
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.rig.supervisor import PROGRAM, NodeError, Supervisor
from mqproto.simulator.security.guarding import is_installed
from mqproto.simulator.security.keyfiles import make_keys
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.views import as_toml
from mqproto.turn.guard import PRIVACY_LEVELS

BITS: Final = 2_048
PAUSES_S: Final = (0.5, 4.0)
"""The pause between two replacements: short enough for several while a message is resent, or between two kills."""
TOPOLOGY: Final = "operator.toml"
PROTECTED: Final = Protection(authenticated=True, privacy=PRIVACY_LEVELS[-1])


def protected(topology: Topology, node: str, queues: Iterable[str]) -> Topology:
    """Return the topology with these queues accepting only encrypted and signed messages.

    Raises:
        UsageError: the libraries for that are not installed.
    """
    if not is_installed():
        raise UsageError("--keys needs cryptography: pip install 'mqproto[security]'")
    host = topology.node_named(node)
    changed = {name: replace(host.queue(name), protection=PROTECTED) for name in queues}
    return topology.with_node(replace(host, queues={**host.queues, **changed}))


def give_keys(topology: Topology, directory: Path) -> None:
    """Make keys for each node."""
    for name in topology.nodes:
        make_keys(directory, name, BITS)


class Roller:
    """Replaces keys.

    Attributes:
        rolled: the number of replacements by node.
    """

    def __init__(self, supervisor: Supervisor, seed: int) -> None:
        self.rolled = dict.fromkeys(supervisor.topology.nodes, 0)
        self._dice = chance(seed, "keys")
        self._directory = supervisor.directory
        self._topology = supervisor.directory / TOPOLOGY
        self._topology.write_text(as_toml(supervisor.topology), "utf-8")

    async def run(self, ends_s: float) -> None:
        """Replace the keys of random nodes until `ends_s` on trio's clock, at least once.

        Raises:
            NodeError: keys could not be replaced.
        """
        while True:
            await self._roll(self._dice.choice(list(self.rolled)))
            pause_s = self._dice.uniform(*PAUSES_S)
            if trio.current_time() + pause_s >= ends_s:
                return
            await trio.sleep(pause_s)

    async def _roll(self, name: str) -> None:
        command = [sys.executable, "-m", PROGRAM, "keys", "make", name, "--replace"]
        command += ["--provider", "aes", "--topology", str(self._topology)]
        command += ["--directory", str(self._directory)]
        done = await trio.run_process(command, stdout=subprocess.DEVNULL, capture_stderr=True, check=False)
        if done.returncode:
            raise NodeError(
                f"{name}: its keys were not replaced: {done.stderr.decode('utf-8', 'replace').strip()}"
            )
        self.rolled[name] += 1
