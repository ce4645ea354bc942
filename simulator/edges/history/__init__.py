"""The document history: the outcome of each message, by an identifier that stays the same over all retries.

history.py is what gateways and triggers ask; documents.py has the one statement that changes documents, forgetting.py
what becomes of old ones, leaders.py who delivers from a queue, outbox.py what somebody is to be told, tables.py the
tables; databases.py how SQLite and PostgreSQL are opened, sqlitefile.py the way to a file that each message takes,
errors.py what is said about their errors.
"""

from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.history import DocumentHistory, open_history

__all__ = ["DocumentHistory", "HistoryError", "open_history"]
