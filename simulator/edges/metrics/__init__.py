"""Metrics and health of gateways and triggers."""

from typing import Final

METRICS_PORT: Final = 9190
"""The default port at which a gateway or trigger answers /metrics; the ports of nodes begin at 9180."""
