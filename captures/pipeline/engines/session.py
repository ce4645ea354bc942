"""One Spark session: by default on this machine, otherwise on a named cluster; or a session that exists already.

Spark's own log goes to a file. An error is reported in one line that names this file.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.captures.pipeline.engines.failures import JobError, job_error, reason, reason_in_log
from mqproto.captures.pipeline.engines.gateway import GatewayError, JavaProcess
from mqproto.captures.pipeline.engines.java import archive_for, cache_folder, find_java
from mqproto.captures.pipeline.engines.progress import Listener, Progress, nobody
from mqproto.captures.pipeline.engines.shipping import pack

LOCAL: Final = "local[*]"
LOOPBACK: Final = "127.0.0.1"
OPTIONS: Final = "spark.driver.extraJavaOptions"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable that spark-submit sets for the Python process that it starts."""

ENVIRONMENT: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
"""Variables for Python workers.

Workers allocate memory for batches again and again. Returning it to the kernel each time took a sixth of their time.
These settings also save 300 MB.
"""

LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


@contextmanager
def spark_session(
    master: str | None = None,
    *,
    log: Path,
    settings: Mapping[str, str] | None = None,
    listener: Listener = nobody,
    archive: bool = True,
) -> Iterator[SparkSession]:
    """Provide a session for the block; its Java process ends afterwards.

    Under spark-submit, or if a session exists already, that session is used: its master, its settings and the packages
    on its executors are up to the program that started it.

    Args:
        master: as for spark-submit; by default all cores of this machine.
        log: the file for the output of Spark, its Java process and, if they are on this machine, its workers.
        settings: Spark's settings; they override ours, except for options of Java, which are added after ours.
        listener: is told that Spark starts.
        archive: whether the Java process writes an archive that makes later starts faster, if there is none. It then
            works for some seconds after the block.

    Raises:
        JavaError: there is no Java runtime.
        UsageError: a master or settings are given, and a session exists already.
        JobError: Spark did not start, or the block's work in it failed.
    """
    if SUBMITTED in os.environ or SparkContext._active_spark_context is not None:
        if master is not None or settings:
            raise UsageError(
                "Spark is running already: give master and settings to spark-submit, or whatever started it"
            )
        with _given_session() as session:
            yield session
        return
    listener(Progress("starting Spark"))
    log = log.absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger().addFilter(_is_not_of_py4j)
    with (
        tempfile.TemporaryDirectory(prefix="mqproto-spark-", ignore_cleanup_errors=True) as folder,
        _java_process(master or LOCAL, Path(folder), log, dict(settings or {}), archive) as process,
        _ctrl_c_kills(process),
    ):
        session = _session(process, master or LOCAL, Path(folder), log)
        try:
            yield session
        except Exception as error:
            if _is_of_spark(error) or (process.has_ended and not isinstance(error, MqprotoError)):
                raise job_error("the job failed", reason(error), log) from None
            raise


@contextmanager
def _given_session() -> Iterator[SparkSession]:
    is_ours = SparkContext._active_spark_context is None
    session = SparkSession.builder.getOrCreate()
    try:
        yield session
    except Exception as error:
        if _is_of_spark(error):
            raise job_error("the job failed", reason(error), None) from None
        raise
    finally:
        if is_ours:
            session.stop()


def _is_local(master: str) -> bool:
    """Whether the only executor is in the driver's own Java process."""
    return master == "local" or master.startswith("local[")


def _is_here(master: str) -> bool:
    """Whether no other machine has to reach the driver."""
    return _is_local(master) or master.startswith(
        ("local-cluster[", f"spark://{LOOPBACK}:", "spark://localhost:")
    )


@contextmanager
def _java_process(
    master: str, folder: Path, log: Path, settings: Mapping[str, str], make_archive: bool
) -> Iterator[JavaProcess]:
    """Run the Java process until the block ends; then let it end by itself, or kill it after an interrupt."""
    spark_home = Path(_find_spark_home())
    java = find_java(folder)
    archive = archive_for(java, spark_home, cache_folder(), make=make_archive)
    ours = _settings(master, folder, log, () if archive is None else archive.options)
    if more := settings.get(OPTIONS):
        settings = {**settings, OPTIONS: f"{ours[OPTIONS]} {more}"}
    command = [str(spark_home / "bin" / "spark-submit"), "--master", master]
    for name, value in {**ours, **settings}.items():
        command += ["--conf", f"{name}={value}"]
    environ = {**os.environ, **_variables(master), "JAVA_HOME": str(java.home)}
    if not any(map(str.isspace, str(folder))):
        environ["SPARK_LAUNCHER_OPTS"] = f"-XX:ErrorFile={folder}/crash"
    with log.open("ab") as file:
        before = file.tell()
        try:
            process = JavaProcess([*command, "pyspark-shell"], environ, file)
        except (GatewayError, OSError) as error:
            if archive is not None:  # Perhaps it was at fault.
                archive.path.unlink(missing_ok=True)
            why = reason_in_log(log.read_bytes()[before:].decode(errors="replace")) or str(error)
            raise job_error("Spark did not start", why, log) from None
        is_killed = True
        try:
            yield process
            is_killed = False
        except Exception:
            is_killed = False
            raise
        finally:
            if is_killed:
                process.kill()
            else:
                _stop_context()
                process.close(wait=archive is None or not archive.is_new)
            _forget_session()


def _settings(master: str, folder: Path, log: Path, options: tuple[str, ...]) -> dict[str, str]:
    """Return Spark's settings.

    Args:
        options: options for the command line of Java, in addition to ours.
    """
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOGGING, "utf-8")
    settings = {
        "spark.app.name": "mqproto",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        # Data between stages is packed already, see mqproto.captures.pipeline.engines.engine.
        "spark.rdd.compress": "false",
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    settings |= {f"spark.executorEnv.{name}": value for name, value in ENVIRONMENT.items()}
    if _is_here(master):
        # The work is done in Python: fully optimizing Java's part costs more than it saves, and a
        # collector that lets the heap grow takes memory that Python could use.
        options = (*options, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = LOOPBACK
    places = [f"-Dlog4j2.configurationFile={log4j.as_uri()}", f"-Djava.io.tmpdir={folder}"]
    return settings | {OPTIONS: shlex.join([*options, f"-XX:ErrorFile={log}.crash", *places])}


def _variables(master: str) -> dict[str, str]:
    """Return the environment variables that a session has in addition to ours."""
    variables = {"SPARK_LOCAL_IP": LOOPBACK} if _is_here(master) else {}
    # If it is not named, Spark takes the first python3 on PATH, which may lack everything.
    if _is_local(master) or "PYSPARK_PYTHON" not in os.environ:
        variables["PYSPARK_PYTHON"] = sys.executable
    return variables


def _session(process: JavaProcess, master: str, folder: Path, log: Path) -> SparkSession:
    """Return the session of a Java process.

    Raises:
        JobError: Spark did not start.
    """
    on_interrupt = signal.getsignal(signal.SIGINT)
    added = process.address | _variables(master)
    before = {name: os.environ[name] for name in added.keys() & os.environ.keys()}
    os.environ.update(added)
    try:
        context = SparkContext(conf=SparkConf().setMaster(master))
        if not _is_local(master):
            context.addPyFile(str(pack(folder / "mqproto.zip")))
        return SparkSession(context)
    except Exception as error:
        raise job_error("Spark did not start", reason(error), log) from None
    finally:
        for name in added:
            del os.environ[name]
        os.environ.update(before)
        # Spark has set its own handler, which calls Java from inside another call to it.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)


def _stop_context() -> None:
    """Stop Spark, ignoring errors and warnings.

    They occur if Spark's Java process is ending, or has ended, on its own.
    """
    if (context := SparkContext._active_spark_context) is not None:
        with suppress(Exception), warnings.catch_warnings(action="ignore"):
            context.stop()
    if (gateway := SparkContext._gateway) is not None:
        with suppress(Exception):
            gateway.shutdown()


@contextmanager
def _ctrl_c_kills(process: JavaProcess) -> Iterator[None]:
    """Make Ctrl-C end the Java process before anything else.

    Python may be inside a call to Java. Other calls that are made while that call unwinds would wait for its answer, or
    fail.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    was_pressed = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal was_pressed
        was_pressed = True
        process.strike()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except BaseException:
        if was_pressed:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a log record is from code other than py4j.

    py4j logs tracebacks of its exceptions through the root logger; they are not meant for people.
    """
    return "py4j" not in Path(record.pathname).parts


def _forget_session() -> None:
    """Make pyspark forget this session's Java process and start a new one for the next session."""
    if (context := SparkContext._active_spark_context) is not None:
        context._accumulatorServer.shutdown()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _is_of_spark(error: BaseException) -> bool:
    """Whether an exception comes from pyspark, from py4j, or from the connection between them and Java."""
    return isinstance(error, ConnectionError) or any(
        each.__module__.partition(".")[0] in ("pyspark", "py4j") for each in type(error).__mro__
    )


__all__ = ["LOCAL", "JobError", "spark_session"]
