"""What every test gets: a hypothesis profile, CI's view of skipped tests, the count of the specification.

Hypothesis profiles, chosen by HYPOTHESIS_PROFILE:
- fast (the default): a few dozen examples each, new ones at every run.
- ci (the default where CI is set): more, and the same at every run, so that a red run is the change's fault.
- deep: thousands, new ones at every run; for a night, or for a parser that has just been written.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests import conformance

IN_CI = bool(os.environ.get("CI"))

# Deadlines and the health check of slow drawing measure the machine, which is shared, and not the code.
# derandomize is said here because hypothesis would take it from its own idea of CI.
STEADY = settings(
    deadline=None, print_blob=True, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fast", STEADY, max_examples=50)
settings.register_profile("ci", STEADY, max_examples=200, derandomize=True)
settings.register_profile("deep", STEADY, max_examples=5_000)


def profile_name(environment: Mapping[str, str]) -> str:
    """Which profile these environment variables ask for."""
    return environment.get("HYPOTHESIS_PROFILE") or ("ci" if environment.get("CI") else "fast")


settings.load_profile(profile_name(os.environ))

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def without_skips(report: Report) -> Report:
    """The report as it is, but in CI a skipped test has failed: what it says has not been shown."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"in CI nothing may be skipped; .ci/run installs what tests need. {reason}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return without_skips((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return without_skips((yield))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(conformance.summary())
