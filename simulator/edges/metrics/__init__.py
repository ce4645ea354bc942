"""Metrics and health of gateways and triggers."""

from typing import Final

METRICS_PORT: Final = 9190
"""The default port for /metrics of a gateway or trigger; nodes begin at 9180."""
