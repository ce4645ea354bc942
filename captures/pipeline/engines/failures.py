"""Errors of failed jobs: one line that says what failed and where, instead of tracebacks in two languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mqproto.base.errors import MqprotoError

LIMIT_CHARACTERS: Final = 500
TOLD: Final = re.compile(
    r"^(?:mqproto\.captures\.pipeline\.engines\.failures\.)?TaskError: (.+)$", re.MULTILINE
)
PYTHON: Final = re.compile(
    r"^(?:\w+\.)*(\w+(?:Error|Exception|Exit|Interrupt|Warning)(?:: .*)?)$", re.MULTILINE
)
LAST_TASK: Final = re.compile(r"most recent failure: Lost task [^:]*: (.+)")
JAVA_CLASS: Final = re.compile(r"^: |\b(?:[a-z]\w*\.)+[A-Z]\w*: ")
COMPLAINT: Final = re.compile(
    r"^(?:Exception in thread \S+ )?((?:Error|[\w.]+(?:Exception|Error): ).*)(?:\n(?!\tat |Error)(\S.*))?",
    re.MULTILINE,
)
"""Matches the last message of a Java process that gives up.

It is a line, perhaps followed by a line that is not a frame of a traceback.
"""
ADVICE: Final = re.compile(r"(?: Consider setting| Driver stacktrace| Search path:).*")
"""Matches Spark's remarks for its own developers."""


class JobError(MqprotoError):
    """Spark did not start, or a job failed; the text is one line and names the log."""


class TaskError(Exception):
    """A failure in a worker: the file, the range and the reason. It reaches the driver as text."""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """In a worker, turn an exception of the block into a TaskError with a description of the work.

    A TaskError is raised again as it is.

    Args:
        what: the description for people, such as `capture.pcap, bytes 0 to 67108864`.
    """
    try:
        yield
    except TaskError:
        raise
    except Exception as error:
        told = str(error) if isinstance(error, MqprotoError | OSError) else f"{type(error).__name__}: {error}"
        raise TaskError(" ".join(f"{what}: {told}".split())) from error


def reason(error: BaseException) -> str:
    """Return why Spark failed, in one line.

    The line has the worker's own message first, then the end of its traceback, then what Spark reports about the last
    task, or about itself.
    """
    text = str(error)
    if told := TOLD.findall(text) or PYTHON.findall(text):
        line = told[-1]
        if line.startswith("ModuleNotFoundError"):
            line += ", which workers need: docs/how-to/cluster.md says how they get it"
    elif last := LAST_TASK.search(text):
        line = last[1]
    else:
        lines = [line for line in text.splitlines() if line.strip() and not _is_of_the_gateway(line)]
        line = "its Java has ended" if not lines or isinstance(error, ConnectionError) else lines[0]
    return _shortened(line)


def reason_in_log(text: str) -> str | None:
    """Return why a Java process did not start, from its output; None if the output does not tell."""
    told = COMPLAINT.search(text)
    return _shortened(f"{told[1]}: {told[2]}" if told[2] else told[1]) if told else None


def _shortened(line: str) -> str:
    line = " ".join(ADVICE.sub("", JAVA_CLASS.sub("", line)).split())
    return line if len(line) <= LIMIT_CHARACTERS else f"{line[: LIMIT_CHARACTERS - 3]}..."


def _is_of_the_gateway(line: str) -> bool:
    """Whether the line only reports that a call failed."""
    return line.startswith(("An error occurred while calling", "Error while sending", "Answer from Java"))


def job_error(failed: str, why: str, log: Path | None) -> JobError:
    """Return the error that is shown to people.

    Args:
        failed: what failed, such as `the job failed`.
        why: the reason in one line, from `reason`.
        log: where Spark's log is, if known.
    """
    where = f"Spark's log is {log}" if log else "Spark's log has more"
    return JobError(f"{failed}: {why.rstrip('.')}; {where}")
