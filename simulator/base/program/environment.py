"""What may stand in the environment, so that it need not be typed with each command."""

from __future__ import annotations

from typing import Final

DEFAULT_TOPOLOGY: Final = "three-node"
TOPOLOGY_VARIABLE: Final = "MQPROTO_TOPOLOGY"
DIRECTORY_VARIABLE: Final = "MQPROTO_DIRECTORY"
