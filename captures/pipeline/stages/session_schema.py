"""The table of sessions."""

from __future__ import annotations

from typing import Final

from captures.pipeline.schemas import sessions

SESSIONS: Final = sessions.SESSIONS.schema
