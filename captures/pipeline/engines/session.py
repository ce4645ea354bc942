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
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.captures.pipeline.engines.failures import JobError, job_error, reason, reason_in_log
from mqproto.captures.pipeline.engines.gateway import GatewayError, JavaProcess, environment
from mqproto.captures.pipeline.engines.java import find_java
from mqproto.captures.pipeline.engines.progress import Listener, Progress, nobody
from mqproto.captures.pipeline.engines.sharing import cache_folder, share_classes
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


@dataclass(frozen=True, slots=True)
class Master:
    """The place where executors run, in the form of spark-submit's --master."""

    name: str

    @property
    def is_local(self) -> bool:
        """Whether the only executor is in the driver's own Java process."""
        return self.name == "local" or self.name.startswith("local[")

    @property
    def is_here(self) -> bool:
        """Whether no other machine has to reach the driver."""
        return self.is_local or self.name.startswith(
            ("local-cluster[", f"spark://{LOOPBACK}:", "spark://localhost:")
        )


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
        JavaError: there is no Java runtime on which Spark can run.
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
    with tempfile.TemporaryDirectory(prefix="mqproto-spark-", ignore_cleanup_errors=True) as folder:
        starting = _Start(Master(master or LOCAL), log, Path(folder), dict(settings or {}), archive)
        logging.getLogger().addFilter(_is_not_of_py4j)
        with log.open("ab") as file, starting.java_process(file) as process, _ctrl_c_kills(process):
            session = starting.session(process)
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


class _Start:
    """The settings with which a session starts."""

    def __init__(
        self, master: Master, log: Path, folder: Path, settings: dict[str, str], archive: bool
    ) -> None:
        self.master = master
        self.log = log
        self.folder = folder
        self.spark_home = Path(_find_spark_home())
        self.java = find_java(folder)
        self.sharing = share_classes(self.java, self.spark_home, cache_folder(), make=archive)
        ours = self._settings()
        self.settings = ours | settings
        if more := settings.get(OPTIONS):
            self.settings[OPTIONS] = f"{ours[OPTIONS]} {more}"

    def _settings(self) -> dict[str, str]:
        log4j = self.folder / "log4j2.properties"
        log4j.write_text(LOGGING, "utf-8")
        options = [
            *self.sharing.options,
            f"-XX:ErrorFile={self.log}.crash",
            f"-Dlog4j2.configurationFile={log4j.as_uri()}",
            f"-Djava.io.tmpdir={self.folder}",
        ]
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
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        settings |= {f"spark.executorEnv.{name}": value for name, value in ENVIRONMENT.items()}
        if self.master.is_here:
            # The work is done in Python: fully optimizing Java's part costs more than it saves, and a
            # collector that lets the heap grow takes memory that Python could use.
            options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = LOOPBACK
        settings[OPTIONS] = shlex.join(options)
        return settings

    def _environment(self) -> dict[str, str]:
        """Return the environment that this session's Java process has in addition to ours."""
        variables = {"JAVA_HOME": str(self.java.home)}
        if self.master.is_here:
            variables["SPARK_LOCAL_IP"] = LOOPBACK
        # If it is not named, Spark takes the first python3 on PATH, which may lack everything.
        if self.master.is_local or "PYSPARK_PYTHON" not in os.environ:
            variables["PYSPARK_PYTHON"] = sys.executable
        if not any(map(str.isspace, str(self.folder))):
            variables["SPARK_LAUNCHER_OPTS"] = f"-XX:ErrorFile={self.folder}/crash"
        return variables

    @contextmanager
    def java_process(self, log: BinaryIO) -> Iterator[JavaProcess]:
        """Run the Java process until the block ends, and then ask it to end.

        It is killed if the block was interrupted, as by Ctrl-C, or if it does not end in time.

        Raises:
            JobError: Spark did not start.
        """
        command = [str(self.spark_home / "bin" / "spark-submit"), "--master", self.master.name]
        for name, value in self.settings.items():
            command += ["--conf", f"{name}={value}"]
        command.append("pyspark-shell")
        before = self.log.stat().st_size
        try:
            process = JavaProcess(command, os.environ | self._environment(), log)
        except (GatewayError, OSError) as error:
            self.sharing.discard()
            with self.log.open(encoding="utf-8", errors="replace") as said:
                said.seek(before)
                why = reason_in_log(said.read()) or str(error)
            raise job_error("Spark did not start", why, self.log) from None
        is_ended = False
        try:
            yield process
        except Exception:
            self._end(process)
            is_ended = True
            raise
        else:
            self._end(process)
            is_ended = True
        finally:
            if not is_ended:
                process.kill()
            _forget_session()

    def _end(self, process: JavaProcess) -> None:
        if (context := SparkContext._active_spark_context) is not None:
            # Its Java may be ending, or have ended, by itself: then this fails, and may warn.
            with suppress(Exception), warnings.catch_warnings(action="ignore"):
                context.stop()
        process.close(wait=not self.sharing.is_new)

    def session(self, process: JavaProcess) -> SparkSession:
        """Return the session once its Java process is running.

        Raises:
            JobError: Spark did not start.
        """
        on_interrupt = signal.getsignal(signal.SIGINT)
        try:
            with environment(self._environment()):
                context = SparkContext(conf=SparkConf().setMaster(self.master.name), gateway=process.gateway)
            if not self.master.is_local:
                context.addPyFile(str(pack(self.folder / "mqproto.zip")))
            return SparkSession(context)
        except Exception as error:
            raise job_error("Spark did not start", reason(error), self.log) from None
        finally:
            # Spark has set its own handler, which calls Java from inside another call to it.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, on_interrupt)


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
    """Whether a log record is meant for people; py4j also logs tracebacks of its exceptions, without a logger."""
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
