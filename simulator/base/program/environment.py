"""Returns the options with which another command finds the same nodes.

Options that are set in the environment are left out.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

DEFAULT_TOPOLOGY: Final = "three-node"
TOPOLOGY_VARIABLE: Final = "MQPROTO_TOPOLOGY"
DIRECTORY_VARIABLE: Final = "MQPROTO_DIRECTORY"


def typed_again(topology: str, directory: Path | None) -> str:
    """Return the options for a topology and a directory, after a space; empty if neither is needed."""
    where = directory_again(directory)
    if topology in (DEFAULT_TOPOLOGY, os.environ.get(TOPOLOGY_VARIABLE)):
        return where
    return f" --topology {shlex.quote(topology)}{where}"


def directory_again(directory: Path | None) -> str:
    """Return only the option for a directory, after a space; empty if none is needed."""
    if directory is None or os.environ.get(DIRECTORY_VARIABLE) == str(directory):
        return ""
    return f" --directory {shlex.quote(str(directory))}"
