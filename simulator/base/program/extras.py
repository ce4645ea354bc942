"""Finds out which build of this package is running, and which extra installs a missing module."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import mqproto

EXTRA_OF: Final = {
    "decode": "captures",
    "wireshark": "captures",
    "analyse": "spark",
    "report": "spark",
    "tables": "spark",
}
"""The extra that each command needs. Any other command needs `simulator`.

`decode --tables` needs the same extra as `analyse`.
"""
MODULES_OF: Final = {
    "cryptography": "security",
    "Crypto": "security",
    "opentelemetry": "traces",
}
"""The extra that installs each module, regardless of which command needs the module."""
OURS: Final = ("mqproto", "pyspark_mqproto")


def to_install(missing: ModuleNotFoundError, arguments: Sequence[str]) -> str | None:
    """Return advice about a missing module; None if no extra installs it, because it is ours or Python's.

    Args:
        arguments: the arguments after `mqproto`.
    """
    module = (missing.name or "").partition(".")[0]
    if not module or module in OURS or module in sys.stdlib_module_names:
        return None
    extra = MODULES_OF.get(module) or EXTRA_OF.get(next(iter(arguments), ""), "simulator")
    if extra == "captures" and any(argument.partition("=")[0] == "--tables" for argument in arguments):
        extra = "spark"
    return f"{missing.name} is not installed: pip install 'mqproto[{extra}]'"


@cache
def build() -> str:
    """Return the version and, if it is known, the commit, such as `0.6.0+g71819341`.

    A wheel from `make dist` has both in its version. pip records the commit if it installs from a repository (PEP 610).
    For a checkout, Git is asked for the commit, but only once.
    """
    found = distribution("mqproto")
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id", "")[:8]
    checkout = Path(mqproto.__file__).parents[1]
    if (checkout / ".git").exists():
        asked = (
            "git",
            "-C",
            str(checkout),
            "describe",
            "--always",
            "--exclude=*",
            "--abbrev=8",
            "--dirty=.dirty",
        )
        try:
            commit = subprocess.run(
                asked, capture_output=True, text=True, timeout=5, check=False
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            commit = ""
    return f"{found.version}+g{commit}" if commit and "+" not in found.version else found.version


def version_line() -> str:
    """Return the line that --version prints."""
    return f"mqproto {build()} (Python {'.'.join(map(str, sys.version_info[:3]))})"
