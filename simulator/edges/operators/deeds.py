r"""Records operators' actions on failed messages in `operators.log`, in the folder of the stores.

A line is on disk before its action is carried out, except `sent-again`, which gives the new identifier of a message
that was sent again:

    {"event": "resolved", "message": "GUID\\17", "queue": "destination\\orders", "copy": "GUID\\21", "reason": "a note"}

`mqproto history` and `mqproto audit` read this log together with all other logs. Messages that were removed in other
ways are in the node's log of removals (simulator/node/removals.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.edge.custody import Deed
from mqproto.simulator.client.story import logs_in, steps_in
from mqproto.simulator.edges.operators.failures import FailedMessage

NAME: Final = "operators.log"
WHO: Final = "operator"


def note_down(directory: Path, deed: Deed, subjects: Iterable[Mapping[str, str]], reason: str = "") -> None:
    """Write a line about each subject, and flush it to disk.

    Args:
        directory: the folder of the stores.
        subjects: the facts for each line, as `facts_of` returns them, or the same facts about a message that was not in
            a queue.
        reason: an operator's note.

    Raises:
        UsageError: the log cannot be written.
    """
    from mqproto.simulator.base.log import node_log
    from mqproto.simulator.base.logfile import LogFile

    path = directory / NAME
    why = {"reason": reason} if reason else {}
    try:
        with LogFile(path) as file:
            log = node_log(file, WHO)
            for facts in subjects:
                log.info(deed.value, **facts, **why)
            file.sync()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}), and who did what would not be known: make room"
        ) from None


def returned(directory: Path) -> dict[str, str]:
    """Return the new identifiers of dead letters that were sent again, keyed by their old identifiers.

    They are read from the nodes' logs.
    """
    logs = (path for path in logs_in(directory) if ".removals.log" in path.name)
    lines = (step for path in logs for step in steps_in(path, (b'"again"',)))
    return {step.message: str(step.facts["again"]) for step in lines if "again" in step.facts}


def facts_of(failures: Iterable[FailedMessage]) -> list[dict[str, str]]:
    """Return, for each of these failures, the facts that its line in the log has."""
    return [
        {"message": failure.id, "queue": failure.queue, "copy": str(failure.lies_as)} for failure in failures
    ]
