"""The same job makes the same tables in one process and on a cluster, and executors use the code that was shipped to
them.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from mqproto.captures.pipeline.engines.java import find_java
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.engines.shipping import pack
from mqproto.captures.pipeline.run.job import Wanted, analyse
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline import processes, witnessed
from tests.captures.pipeline.clusters import TWO_EXECUTORS, home_of_our_own, run
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.objects import BUCKET, ObjectStore
from tests.captures.pipeline.samples import elsewhere
from tests.captures.pipeline.witnessed import KILLED_STAGE, witnesses
from tests.conformance import ROOT

# Java is slow to start, and slower on a machine with other work: the limit is for what hangs.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

RANGE_MIB = 1
FILLED = {"packets", "relations", "endings", "sessions", "sequences", "gaps", "histories", "hops", "findings"}
"""The tables that have rows for these samples; other tables may or may not have any."""


@pytest.mark.long
def test_two_executors_that_share_no_folder_with_the_driver_make_the_same_though_one_is_killed(
    tmp_path: Path, objects: ObjectStore
) -> None:
    """The executors and the driver share only the S3 server: the driver's folders do not exist where the work is
    done.
    """
    # A capture for each executor.
    samples = [
        elsewhere(name, tmp_path, system) for system, name in enumerate(("express-pair", "gap-held"), 1)
    ]
    captures = [objects.put(f"{tmp_path.name}/{path.name}", path.read_bytes()) for path in samples]
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
    analyse(captures, alone, LocalEngine(), Wanted(range_bytes=RANGE_MIB << 20))
    rows = rows_of(alone)
    assert rows_of(Tables(out)) == rows
    assert all(rows[name] for name in FILLED)
    told = witnesses(seen)
    assert {".zip/" in place for witness in told for place in (witness.code, witness.needs)} == {True}
    assert {witness.sees for witness in told} == {"False"}
    # What the killed one was doing was done again by another process. What it had read, the other one may have by then.
    executors = defaultdict[str, set[int]](set)
    for witness in told:
        executors[witness.task].add(witness.executor)
    again = {task.partition(",")[0] for task, some in executors.items() if len(some) > 1}
    assert KILLED_STAGE in again
    processes.wait_until_gone(environ)


def python_without(folder: Path, program: Path) -> Path:
    """Return the path of a Python interpreter for which a folder exists, but is empty.

    Python then finds the folder's package by its name, but the package has no content.
    """
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    apart = ["unshare", "--mount", *as_root, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]
    done = subprocess.run([*apart, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine allows no mount of one's own: {done.stderr.strip()}")
    program.write_text(f'#!/bin/sh\nexec {shlex.join([*apart, sys.executable])} "$@"\n')
    program.chmod(0o755)
    return program


PROGRAM = """
from pathlib import Path

from mqproto.captures.pipeline.engines.session import spark_session
from mqproto.captures.spark import read


def places(_):
    import construct, mqproto.captures

    return mqproto.captures.__file__, construct.__file__


with spark_session(log=Path("spark.log")) as spark:
    print(spark.sparkContext.parallelize(range(2)).map(places).collect())
    assert read(spark, "CAPTURE").histories.where("outcome = 'confirmed'").count() == 9
"""


@pytest.mark.long
def test_under_spark_submit_workers_have_our_code_from_what_it_was_given(tmp_path: Path) -> None:
    program, home = tmp_path / "program.py", home_of_our_own(tmp_path / "home")
    program.write_text(PROGRAM.replace("CAPTURE", str(ROOT / "captures" / "samples" / "gap-held.pcapng")))
    # The package's Java, though there may be another: so that it is known to run Spark.
    java = find_java(tmp_path, {}).home
    environ = {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1"}
    submit = [f"{home}/bin/spark-submit", "--master", "local[2]"]
    submit += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    submit += ["--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    submit += ["--py-files", str(pack(tmp_path / "shipped.zip")), str(program)]
    places = ast.literal_eval(run(submit, environ, tmp_path))
    assert [".zip/" in place for each in places for place in each] == [True] * 4
    assert not (tmp_path / "spark.log").exists()
