"""The end of a run, for people."""

from __future__ import annotations

from mqproto.simulator.base.screen import plain_table, show_verdict, wide_console
from mqproto.simulator.fuzz.hostile.verdict import (
    LEAST_SHARE,
    RECOVERY_S,
    Report,
)
from mqproto.simulator.fuzz.tactics.outofturn import TACTICS
from mqproto.simulator.rig.observer import LOG_LIMIT_BYTES, MB, MEMORY_LIMIT_BYTES


def show_report(report: Report) -> None:
    """Print the limits and the broken promises; each attack has had its line."""
    console = wide_console()
    console.print()
    console.print(
        f"seed {report.seed}: {len(report.ordeals)} attacks in {report.seconds:.0f} s; a node may have "
        f"{MEMORY_LIMIT_BYTES / MB:.0f} MB, and write {LOG_LIMIT_BYTES:,} bytes of log in an attack; "
        f"at least {LEAST_SHARE:.0%} of what came before it comes during it, and all within {RECOVERY_S:g} s after it",
        markup=False,
    )
    if report.broken:
        console.print(f"stores and logs: {report.stores}", markup=False)
    show_verdict(console, report.broken, "nothing honest was lost, doubled, out of order or blocked")


def show_attacks() -> None:
    """Print every attack and what it does."""
    found = plain_table("attack")
    found.add_column("what it does", no_wrap=True)
    for name, tactic in TACTICS.items():
        found.add_row(name, (tactic.__doc__ or "").partition("  [MS-")[0])
    wide_console(markup=False).print(found)
