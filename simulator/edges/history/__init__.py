"""The document history: the outcome of each message, under an identifier that all retries share.

Gateways and triggers use history.py. documents.py has the only statement that changes documents, and forgetting.py
deletes old ones. leaders.py decides which trigger delivers from a queue, outbox.py has the reports to send, and
tables.py has the tables. databases.py opens SQLite and PostgreSQL, sqlitefile.py is the fast way to access a file, and
errors.py explains errors.
"""

from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.history import DocumentHistory, open_history

__all__ = ["DocumentHistory", "HistoryError", "open_history"]
