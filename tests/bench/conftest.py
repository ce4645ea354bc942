"""What tests of benchmarks get: those of the simulator have it as well."""

from __future__ import annotations

from tests.simulator.conftest import forked_programs, no_width_from_outside

__all__ = ["forked_programs", "no_width_from_outside"]
