"""The end of a run, for people: a line for each attack, and the broken promises."""

from __future__ import annotations

from rich.table import Table

from mqproto.simulator.base.screen import plain_table, show_verdict, wide_console
from mqproto.simulator.fuzz.hostile.verdict import (
    LEAST_SHARE,
    LOG_LIMIT_BYTES,
    MB,
    MEMORY_LIMIT_BYTES,
    RECOVERY_S,
    Ordeal,
    Report,
)
from mqproto.simulator.fuzz.tactics.outofturn import TACTICS


def show_report(report: Report) -> None:
    """Print all attacks in a table, then the broken promises."""
    console = wide_console()
    console.print()
    console.print(table(report.ordeals))
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


def table(ordeals: list[Ordeal]) -> Table:
    """Return a line for each attack; memory and log are of the node with most, CPU of the attacked node."""
    found = plain_table(
        "attack",
        "form",
        "at",
        "cases",
        "before/s",
        "during/s",
        "share",
        "late ms",
        "worst ms",
        "after",
        "MB",
        "log",
        "CPU",
    )
    for ordeal in ordeals:
        found.add_row(
            ordeal.tactic,
            ordeal.form,
            ordeal.node,
            f"{ordeal.spent.cases:,}",
            f"{ordeal.before_per_s:,.0f}",
            f"{ordeal.during_per_s:,.0f}",
            "restart" if ordeal.restarts else f"{ordeal.share:.0%}",
            f"{ordeal.typical_ms:,.0f}",
            f"{ordeal.worst_ms:,.0f}",
            "never" if ordeal.recovered_s is None else f"{ordeal.recovered_s:.1f} s",
            f"{ordeal.peak_mb:,.0f}",
            f"{ordeal.log_bytes:,}",
            f"{ordeal.cpu:.0%}",
        )
    return found
