"""The same job in one process and on a cluster: the same tables, and our code from what was shipped."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from captures.pipeline.engines.engine import Engine
from captures.pipeline.engines.java import find_java
from captures.pipeline.engines.localengine import LocalEngine
from captures.pipeline.engines.shipping import pack
from captures.pipeline.run.job import analyse
from captures.pipeline.tables.tables import Tables
from tests.captures.pipeline import processes, witnessed
from tests.captures.pipeline.clusters import TWO_EXECUTORS, home_of_our_own, run
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.objects import BUCKET, ObjectStore
from tests.captures.pipeline.samples import elsewhere
from tests.captures.pipeline.witnessed import KILLED_STAGE, Witness, witnesses

# Java is slow to start, and slower on a machine with other work: the limit is for what hangs.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

RANGE_MIB = 1
FILLED = {"packets", "relations", "endings", "sessions", "sequences", "gaps", "histories", "hops", "findings"}
"""Tables that have rows for these samples, whatever the others have."""


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Some captures, each of a system of its own, in a folder of their own, which is named in their rows."""
    folder = tmp_path / "samples"
    folder.mkdir()
    for system, name in enumerate(("express-pair", "gap-held", "loss-and-reordering", "window"), 1):
        elsewhere(name, folder, system)
    return folder


def tables_of(samples: Path, out: Path, engine: Engine) -> Tables:
    """What this engine makes of the samples."""
    tables = Tables(out)
    analyse([str(samples)], tables, engine, range_bytes=RANGE_MIB << 20)
    return tables


def assert_same(found: Tables, expected: Tables) -> None:
    """The same tables with the same rows; the order of parts is not promised."""
    rows = rows_of(expected)
    assert rows_of(found) == rows
    assert all(rows[name] for name in FILLED)


def assert_shipped(seen: Iterable[Witness]) -> None:
    """All had our code, and construct, from the zip."""
    assert {".zip/" in place for witness in seen for place in (witness.code, witness.needs)} == {True}


def test_two_executors_that_share_no_folder_with_the_driver_make_the_same_though_one_is_killed(
    samples: Path, tmp_path: Path, objects: ObjectStore
) -> None:
    """All that they have in common is the S3 server: the driver's folders are not there where the work is done."""
    captures = [objects.put(f"{tmp_path.name}/{path.name}", path.read_bytes()) for path in samples.iterdir()]
    driver, seen = tmp_path / "driver", tmp_path / "seen"
    for folder in (driver, driver / "tmp", seen):
        folder.mkdir()
    environ = {
        **processes.marked_environment(),
        "SPARK_HOME": str(home_of_our_own(tmp_path / "home")),
        "TMPDIR": str(driver / "tmp"),
        "PYSPARK_PYTHON": str(python_without(driver, tmp_path / "python")),
    }
    out = f"s3://{BUCKET}/{tmp_path.name}/tables"
    command = [sys.executable, witnessed.__file__, str(seen), "--kill", "analyse", *captures]
    command += ["--out", out, "--range", str(RANGE_MIB), "--master", TWO_EXECUTORS]
    run(command, environ, driver)
    alone = Tables(tmp_path / "alone")
    analyse(captures, alone, LocalEngine(), range_bytes=RANGE_MIB << 20)
    assert_same(Tables(out), alone)
    told = witnesses(seen)
    assert_shipped(told)
    assert {witness.sees for witness in told} == {"False"}
    # What the killed one was doing was done again by another process, and what it had read, as that was lost with it.
    executors = defaultdict[str, set[int]](set)
    for witness in told:
        executors[witness.task].add(witness.executor)
    again = {task.partition(",")[0] for task, some in executors.items() if len(some) > 1}
    assert {"reading packets", KILLED_STAGE} <= again
    processes.wait_until_gone(environ)


def python_without(folder: Path, program: Path) -> Path:
    """A Python that has a folder's name, and not what is in it."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    apart = ["unshare", "--mount", *as_root, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]
    done = subprocess.run([*apart, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine allows no mount of one's own: {done.stderr.strip()}")
    program.write_text(f'#!/bin/sh\nexec {shlex.join([*apart, sys.executable])} "$@"\n')
    program.chmod(0o755)
    return program


def test_spark_submit_makes_the_same_by_what_it_was_given(tmp_path: Path) -> None:
    """What several captures and executors as processes add to it, the test above has."""
    samples = elsewhere("gap-held", tmp_path, 1)
    home = home_of_our_own(tmp_path / "home")
    # The package's Java, though there may be another: so that it is known to run Spark.
    java = find_java(tmp_path, {"PATH": os.devnull}).home
    environ = {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1"}
    out, seen = tmp_path / "out", tmp_path / "seen"
    seen.mkdir()
    submit = [f"{home}/bin/spark-submit", "--master", "local[2]"]
    submit += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    submit += ["--driver-java-options", "-XX:TieredStopAtLevel=1"]
    submit += ["--py-files", str(pack(tmp_path / "shipped.zip"))]
    script = [
        witnessed.__file__,
        str(seen),
        "analyse",
        str(samples),
        "--out",
        str(out),
        "--range",
        str(RANGE_MIB),
    ]
    run([*submit, *script], environ, tmp_path)
    assert_same(Tables(out), tables_of(samples, tmp_path / "alone", LocalEngine()))
    assert_shipped(witnesses(seen))
