"""What triggers say about a gateway's messages, looked up in their document history."""

from __future__ import annotations

from pathlib import Path

import trio

from mqproto.simulator.edges.history.documents import UNKNOWN, Documents, LookUp, Record
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.topology import places


class LookedUpHistory:
    """The document history of the triggers in a folder, which is only read, and only when it is asked.

    Args:
        url: the history's URL; empty for the file in the folder.
    """

    def __init__(self, directory: Path, url: str) -> None:
        self._directory, self._url = directory, url
        self._documents: Documents | None = None
        self._one_at_a_time = trio.CapacityLimiter(1)

    async def look(self, scope: str, key: str) -> Record:
        """Return the record of a document; an unknown one if there is no history, or if it is not available."""
        return await trio.to_thread.run_sync(self._look, scope, key, limiter=self._one_at_a_time)

    def _look(self, scope: str, key: str) -> Record:
        try:
            if self._documents is None:
                if not (url := places.history_there(self._directory, self._url)):
                    return UNKNOWN
                self._documents = Documents(url, None, only_reads=True)
            [record] = self._documents.looked([LookUp(scope, key)])
        except HistoryError:
            self.close()
            return UNKNOWN
        return record

    def close(self) -> None:
        """Close the database."""
        documents, self._documents = self._documents, None
        if documents is not None:
            documents.close()
