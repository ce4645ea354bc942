"""Decides which queue manager we are (the captured one, a new one, or a named one), and replaces the other senders."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures.script import Script
from mqproto.wire import Guid, TxSequenceId, guid_from_text

CAPTURED: Final = "captured"
NEW: Final = "new"


def new_guid() -> Guid:
    """Return the GUID of a queue manager that never existed."""
    return Guid(uuid.uuid4().bytes_le)


def named(text: str, captured: Guid | None) -> Guid | None:
    """Return the queue manager that `--identity` asks for, or None if the option was not given.

    Args:
        text: `captured`, `new`, a GUID, or nothing.
        captured: the queue manager whose part is played, if the capture shows it.

    Raises:
        UsageError: the text is none of these.
    """
    if not text:
        return None
    if text == CAPTURED:
        return captured or new_guid()
    if text == NEW:
        return new_guid()
    try:
        return guid_from_text(text)
    except ValueError:
        raise UsageError(f"--identity {text}: write captured, new, or a GUID") from None


def sources(script: Script, own: Guid, text: str) -> Mapping[Guid, Guid]:
    """Return the GUIDs that replace those of captured queue managers, keyed by the captured GUIDs.

    Unless we play under the captured identity, they include new GUIDs for the senders whose messages the captured queue
    manager passed on.
    """
    if text in ("", CAPTURED):
        return {} if script.own_manager is None else {script.own_manager: own}
    captured = {message.identity[0] for message in script.messages}
    return {each: own if each == script.own_manager else new_guid() for each in captured}


def newest_sequence(script: Script) -> TxSequenceId:
    """Return an identifier higher than any that may have been used. Identifiers begin with the time.  [MS-MQQB]
    3.1.1.3.1
    """
    now_ns = time.time_ns()
    captured = [message.place[0].time_stamp for message in script.messages if message.place is not None]
    time_stamp = max([now_ns // 10**9, *(each + 1 for each in captured)])
    return TxSequenceId(time_stamp=min(time_stamp, 2**32 - 1), ordinal=now_ns % 10**9)
