"""The version of this package, and the extra that installs a missing module."""

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
"""The extra that a command needs; others need `simulator`, and `decode --tables` needs the same as `analyse`."""
MODULES_OF: Final = {
    "cryptography": "security",
    "Crypto": "security",
    "opentelemetry": "traces",
}
"""The extra that brings a module, whichever command needs it."""
OURS: Final = ("mqproto", "pyspark_mqproto")


def to_install(missing: ModuleNotFoundError, arguments: Sequence[str]) -> str | None:
    """Return the advice for a missing module; None if it is ours or Python's own, which no extra brings.

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


def version_line() -> str:
    """Return the line that --version prints."""
    import mqproto

    return f"mqproto {mqproto.__version__} (Python {'.'.join(map(str, sys.version_info[:3]))})"
