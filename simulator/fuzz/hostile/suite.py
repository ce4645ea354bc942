"""Runs one attack after another on a chain under honest load, until the time is up.

Each attack is a Round.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import trio

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.fuzz.hostile.attackers import Attackers, attackers
from mqproto.simulator.fuzz.hostile.chain import Chain, topology_of
from mqproto.simulator.fuzz.hostile.plan import PLAIN_SHARE, Form, HostilePlan
from mqproto.simulator.fuzz.hostile.round import Round
from mqproto.simulator.fuzz.hostile.verdict import Ordeal, Report
from mqproto.simulator.rig.rig import new_folder

LONGER: Final = 3
"""How many times longer an attack lasts if it is repeated because too few messages arrived."""
NETWORKS: Final = 250
"""The highest second number in the nodes' addresses; the lowest is 1."""


async def run_strangers(plan: HostilePlan, show: Callable[[Ordeal], None] = lambda ordeal: None) -> Report:
    """Attack until the time is up.

    Args:
        show: called with each attack when it is over.

    Raises:
        NodeError: a node does not start.
        UsageError: the directory does not exist, or openssl, which the links with TLS need, is missing.
    """
    folder = new_folder("strangers", plan.directory)
    report = Report(plan.seed, plan.timed, stores=str(folder))
    began_s = trio.current_time()
    async with attackers() as crowd:
        await _run_part(plan, crowd, folder, report, show, tls=False)
        if plan.with_tls:
            await _run_part(plan, crowd, folder, report, show, tls=True)
    report.seconds = trio.current_time() - began_s
    if not report.broken:
        shutil.rmtree(folder)  # Otherwise the stores and the logs in it say more.
    return report


async def _run_part(
    plan: HostilePlan,
    crowd: Attackers,
    folder: Path,
    report: Report,
    show: Callable[[Ordeal], None],
    *,
    tls: bool,
) -> None:
    """Run all attacks with TLS, or all attacks without.

    If honest messages stay blocked, the next attack begins with new nodes.
    """
    share = 1 - PLAIN_SHARE if tls else PLAIN_SHARE if plan.with_tls else 1
    ends_at = trio.current_time() + plan.seconds * share
    attacks = plan.attacks(tls=tls)
    attack = next(attacks, None)
    for number in count(1):
        if attack is None:
            return
        part = folder / f"{'tls' if tls else 'plain'}-{number}"
        part.mkdir()
        dice = chance(plan.seed, "network", part.name)
        network = f"127.{dice.randint(1, NETWORKS)}.{dice.randrange(256)}"
        chain = Chain(topology_of(network, part, tls=tls), part, plan.seed)
        async with chain.running():
            is_sound = True
            while is_sound and attack is not None:
                ordeal = await tried(chain, crowd, plan, *attack)
                report.ordeals.append(ordeal)
                show(ordeal)
                is_sound = ordeal.recovered_s is not None
                is_over = not plan.only and plan.rounds is None and trio.current_time() >= ends_at
                attack = None if is_over else next(attacks, None)


async def tried(chain: Chain, crowd: Attackers, plan: HostilePlan, tactic: str, form: Form) -> Ordeal:
    """Run one attack.

    If too few honest messages arrived during it, and nothing else is wrong, it is repeated for longer, and only the
    repetition counts. This is because other programs can, for a second or two, take more of the machine than any
    attacker.
    """
    ordeal = await Round(chain, crowd, plan, tactic, form).run(plan.attack_s)
    if plan.timed and ordeal.is_slow and not ordeal.broken(timed=False):
        ordeal = await Round(chain, crowd, plan, tactic, form).run(LONGER * plan.attack_s)
    return ordeal
