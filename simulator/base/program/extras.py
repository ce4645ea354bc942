"""Which version this is, and which extra brings what is not installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

EXTRA_OF: Final = {
    "decode": "captures",
    "wireshark": "captures",
    "analyse": "spark",
    "report": "spark",
    "tables": "spark",
}
"""What a command needs; all others need `simulator`, and `decode` with `--tables` what `analyse` needs."""
MODULES_OF: Final = {
    "cryptography": "security",
    "Crypto": "security",
    "opentelemetry": "traces",
}
"""What some commands need beside that, whichever they are."""
OURS: Final = ("mqproto", "pyspark_mqproto")


def to_install(missing: ModuleNotFoundError, arguments: Sequence[str]) -> str | None:
    """What to do about a module that is not there; None if it is ours or Python's own, so that no extra brings it.

    Args:
        arguments: what was typed behind `mqproto`.
    """
    module = (missing.name or "").partition(".")[0]
    if not module or module in OURS or module in sys.stdlib_module_names:
        return None
    extra = MODULES_OF.get(module) or EXTRA_OF.get(next(iter(arguments), ""), "simulator")
    if extra == "captures" and any(argument.partition("=")[0] == "--tables" for argument in arguments):
        extra = "spark"
    return f"{missing.name} is not installed: pip install 'mqproto[{extra}]'"


def version_line() -> str:
    """What --version says."""
    import mqproto

    return f"mqproto {mqproto.__version__} (Python {'.'.join(map(str, sys.version_info[:3]))})"
