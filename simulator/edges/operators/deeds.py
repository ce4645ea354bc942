r"""What operators have done about messages that failed: `operators.log`, beside the stores.

A line is on disk before what it tells of is done, but for `sent-again`, which says what a message is called since it
was sent once more:

    {"event": "resolved", "message": "GUID\\17", "queue": "destination\\orders", "copy": "GUID\\21", "reason": "a note"}

`mqproto history` and `mqproto audit` read it with all other logs. What somebody took away by other means the node's own
log of removals has (simulator/node/removals.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.logfile import LogFile
from mqproto.simulator.edges.operators.failures import Failure

NAME: Final = "operators.log"
WHO: Final = "operator"


class Deed(StrEnum):
    """What is done."""

    RETRIED = "retried"
    """It is about to be sent once more."""
    SENT_AGAIN = "sent-again"
    """It was, and what it is called now is known."""
    NOT_RETRIED = "not-retried"
    """It could not be, and is where it was."""
    RESOLVED = "resolved"
    ERASED = "erased"


def note_down(directory: Path, deed: Deed, subjects: Iterable[Mapping[str, str]], reason: str = "") -> None:
    """Have a line for each subject on disk.

    Args:
        directory: where the stores are.
        subjects: what each line says: `facts_of` failures, or the same of a message that was in no queue.
        reason: an operator's note.

    Raises:
        UsageError: it cannot be.
    """
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


def facts_of(failures: Iterable[Failure]) -> list[dict[str, str]]:
    """What a line says of each of these."""
    return [
        {"message": failure.id, "queue": failure.queue, "copy": str(failure.lies_as)} for failure in failures
    ]
