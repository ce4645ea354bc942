"""What has to be typed for a command to find the same nodes, and need not where it stands in the environment."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

DEFAULT_TOPOLOGY: Final = "three-node"
TOPOLOGY_VARIABLE: Final = "MQPROTO_TOPOLOGY"
DIRECTORY_VARIABLE: Final = "MQPROTO_DIRECTORY"


def typed_again(topology: str, directory: Path | None) -> str:
    """The options for a topology, as it was typed, and a directory, after a space; empty if none are needed."""
    where = directory_again(directory)
    if topology in (DEFAULT_TOPOLOGY, os.environ.get(TOPOLOGY_VARIABLE)):
        return where
    return f" --topology {shlex.quote(topology)}{where}"


def directory_again(directory: Path | None) -> str:
    """The option for a directory alone, after a space; empty for None."""
    if directory is None or os.environ.get(DIRECTORY_VARIABLE) == str(directory):
        return ""
    return f" --directory {shlex.quote(str(directory))}"
