"""Metrics and health of gateways and triggers."""

from typing import Final

METRICS_PORT: Final = 9190
"""Where a gateway or a trigger answers /metrics if no port is named; nodes begin at 9180."""
