"""Settings for all tests.

They cover a hypothesis profile, a stricter rule for skipped tests in CI, and the count of the specification's sections.
In addition, processes collect garbage rarely, and tests that ask for Spark get it.

Hypothesis profiles, chosen by HYPOTHESIS_PROFILE:
- fast (the default): a few dozen examples for each test, with new ones in every run.
- ci (the default if CI is set): more examples, the same in every run, so that a failure is due to
  the change.
- core: few examples, the same in every run; for all Pythons except the first (.ci/pythons).
- deep: thousands of examples, with new ones in every run; for a night, or for a new parser.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

from tests import conformance
from tests.memory import memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.captures.pipeline.objects import ObjectStore

IN_CI = bool(os.environ.get("CI"))

# Deadlines and the health check of slow drawing measure the machine, which is shared, and not the code.
# derandomize is said here because hypothesis would take it from its own idea of CI.
STEADY = settings(
    deadline=None, print_blob=True, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fast", STEADY, max_examples=30)
settings.register_profile("ci", STEADY, max_examples=100, derandomize=True)
settings.register_profile("core", STEADY, max_examples=25, derandomize=True)
settings.register_profile("deep", STEADY, max_examples=5_000)


def profile_name(environment: Mapping[str, str]) -> str:
    """Return the profile that these environment variables ask for."""
    return environment.get("HYPOTHESIS_PROFILE") or ("ci" if environment.get("CI") else "fast")


settings.load_profile(profile_name(os.environ))

# Stores and tables are flushed some ten thousand times, and no test asks what that takes. Here pytest has its folders,
# and keeps those of tests that failed.
if place := memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", place)

# Hundreds of processes import the same modules. Where Python is told to keep nothing of what it has compiled, as in
# many containers, each compiles all of them once more, which was a quarter of what a node needed to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Some tests are terminals, and who types `make test` may have one that cannot go back in a line, or none.
os.environ["TERM"] = "xterm"

# What collecting makes, a quarter of a million objects, stays to the end. To look through it again and again took a
# tenth of the processor's time: with the usual thresholds after every 700 objects, some of them, or all.
gc.set_threshold(100_000, *gc.get_threshold()[1:])


def pytest_collection_finish() -> None:
    """Prepare a process that runs tests, before the first of them."""
    gc.freeze()
    catch_what_is_ignored()


def catch_what_is_ignored() -> None:
    """Make each ignored signal do nothing in this process, but have its default effect in processes that tests start.

    A process inherits which signals are ignored, but it does not inherit handlers. `make test &` in a script ignores
    SIGINT, and nohup ignores SIGHUP. But the nodes and commands that tests start have to exit on these signals, as they
    do when a person uses them.
    """
    for number in signal.valid_signals() - SET_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


SET_BY_PYTHON: Final = {signal.SIGPIPE, signal.SIGXFSZ}
"""The signals that Python itself ignores; `subprocess` restores their default actions in child processes."""


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
FORBIDDEN: Final = "this machine allows no "
"""How the reason for a skip begins if the machine does not allow what the test needs.

Installing a program would not have prevented the skip. CI cannot prevent it either, and lists such tests at the end.
"""


def _forbidden(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return what the machine does not allow if a test was skipped for that reason; otherwise an empty string."""
    reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
    _, begins, what = reason.partition(f"Skipped: {FORBIDDEN}")
    return begins.removeprefix("Skipped: ") + what


def without_skips(report: Report) -> Report:
    """Return the report unchanged; but in CI, turn a skipped test into a failed one, because its claim has not been
    shown.

    A test that needs what the machine does not allow stays skipped.
    """
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and not _forbidden(report):
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slow test files first, because a run in several processes is over only when the last file is."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


@cache
def group_of(file: Path) -> str:
    """Return the group of test files that share a process with this one.

    It consists of the files with the same xdist_group; a file without one is a group by itself.
    """
    mark = re.search(r"\bxdist_group\(['\"](\w+)['\"]\)", file.read_text("utf-8"))
    return mark.group(1) if mark else str(file)


class WholeFiles(LoadFileScheduling):
    """Makes pytest-xdist use its modes loadfile and loadgroup together, although it offers only one at a time.

    So the fixtures of a file are made only once, and so is the Spark session that several files share.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(self.config.rootpath / super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return WholeFiles(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Make `-n auto` start one process more than there are cores, unless the environment sets a number.

    Tests of nodes and of Spark spend half of their time waiting for other processes; meanwhile, a core can run other
    tests.
    """
    return (yield) + ("PYTEST_XDIST_AUTO_NUM_WORKERS" not in os.environ)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(conformance.summary())
    for report in terminalreporter.stats.get("skipped", ()):
        if what := _forbidden(report):
            terminalreporter.write_line(f"not shown here: {report.nodeid}: {what}")


# A session takes some ten seconds to start, so whatever can be tested without one is. Tests that use `spark` carry
# pytest.mark.xdist_group("spark"), which puts them into one process.


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectStore]:
    """Provide an S3 server, which starts when something is put there. The environment says where it is."""
    from tests.captures.pipeline.objects import ObjectStore

    with ObjectStore() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield store


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, objects: ObjectStore) -> Iterator[SparkSession]:
    """Provide a Spark session with two cores of this machine to all tests that need one; its workers know the S3
    server.
    """
    from mqproto.captures.pipeline.engines.session import spark_session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    with spark_session("local[2]", log=log, settings=settings, archive=False) as session:
        yield session
