r"""What operators have done about messages that failed: `operators.log`, beside the stores.

A line is on disk before what it tells of is done, but for `sent-again`, which says what a message is called since it
was sent once more:

    {"event": "resolved", "message": "GUID\\17", "queue": "destination\\orders", "copy": "GUID\\21", "reason": "a note"}

`mqproto history` and `mqproto audit` read it with all other logs. What somebody took away by other means the node's own
log of removals has (simulator/node/removals.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from simulator.base.log import node_log
from simulator.base.logfile import LogFile
from simulator.client import MessageId
from simulator.edges.operators.failures import Failure

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


class Deeds:
    """Writes them down.

    Args:
        directory: where the stores are.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def note(
        self, deed: Deed, failures: Iterable[Failure], *, reason: str = "", again: Iterable[MessageId] = ()
    ) -> None:
        """Have a line for each of these on disk.

        Args:
            reason: an operator's note.
            again: what each is called now, if it was sent once more.

        Raises:
            UsageError: it cannot be.
        """
        names = list(again)
        try:
            self._write(deed, failures, reason, names)
        except OSError as error:
            raise self._unwritten(error) from None

    def gone(self, message: str, queue: str, reason: str) -> None:
        """The same of a message that was erased, and of which no queue had anything.

        Raises:
            UsageError: it cannot be.
        """
        try:
            with LogFile(self._path) as file:
                facts = {"reason": reason} if reason else {}
                node_log(file, WHO).info(Deed.ERASED.value, message=message, queue=queue, **facts)
                file.sync()
        except OSError as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: OSError) -> UsageError:
        return UsageError(
            f"{self._path} cannot be written ({error.strerror}), and who did what would not be known: make room"
        )

    def _write(self, deed: Deed, failures: Iterable[Failure], reason: str, names: list[MessageId]) -> None:
        with LogFile(self._path) as file:
            log = node_log(file, WHO)
            for number, failure in enumerate(failures):
                facts = {"reason": reason} if reason else {}
                facts |= {"again": str(names[number])} if names else {}
                log.info(
                    deed.value, message=failure.id, queue=failure.queue, copy=str(failure.lies_as), **facts
                )
            file.sync()
