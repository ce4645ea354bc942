"""Records which history each gateway uses, so that no gateway uses a history that lacks its ids.

The records are in the gateways' journals. A history has a life, which is a random name. A gateway's journal keeps this
life, and the last known value of the history's own time (forgetting.py):

    the journal           the history                    the gateway
    is new, or was lost   any                            starts
    is older than lives   is older, too                  starts, and knows its life from then on
    is older than lives   was made since then            does not start
    knows its life        its time is the same or later  starts
    knows its life        its time is earlier, so it is  does not start
                          a restored copy
    knows another life    continues that life            starts, and says which ids are unknown
    knows another life    is any other                   does not start

`mqproto store adopt` declares, for all gateways, that a history continues another one: it begins a new life.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final

from sqlalchemy import Connection, select, update

from mqproto.base.errors import UsageError
from mqproto.simulator.client.journal import EARLIER, HistorySeen
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.forgetting import newest_s
from mqproto.simulator.edges.history.tables import LIFE_BYTES, layouts

APART_S: Final = 10.0
"""The maximum difference, in seconds, between two programs' values of a history's own time.

It includes a margin.
"""
LIFE: Final = re.compile(rf"[0-9a-f]{{{2 * LIFE_BYTES}}}|{EARLIER}")


def origin(life: str, now_s: float, keep_s: float) -> str:
    """Return the origin of a message.

    It has three parts: the life of the history that accepted the message, that history's own time, and the time since
    which it has all ids.
    """
    return f"{life} {now_s:.3f} {now_s - keep_s:.3f}"


def is_forgotten(earlier: str, later: str) -> bool:
    """Return whether the history had already forgotten the earlier message when it accepted the later one.

    Args:
        earlier, later: the origins of the messages, or any text that a sender wrote instead.
    """
    match earlier.split(), later.split():
        case [life, taken, _], [same, now, since] if life == same:
            with suppress(ValueError):
                return float(taken) < float(now) and float(taken) <= float(since) + APART_S
    return False


def lacking(db: Connection, seen: HistorySeen, address: str, *, is_new: bool) -> str:
    """Return a description of the ids that this journal's gateway had but the history lacks.

    Return an empty text if there are none.

    Args:
        is_new: whether the history is just being made; if this call fails, it is not made.

    Raises:
        HistoryError: the history lacks ids, and no operator has accepted that.
    """
    own = db.execute(select(layouts)).one()
    if seen.life == own.life and seen.now_s <= own.now_s:
        return ""
    if seen.life in own.lives_before.split():
        return str(own.lacks)
    adopting = shlex.join(["mqproto", "store", "adopt", address, seen.life])
    if seen.life == own.life:
        raise HistoryError(
            f"{address}: it was put back, and lacks the newest ids of this gateway: put back a newer one; "
            f"if there is none: {adopting}"
        )
    advice = "put back what was there"
    if seen.address not in ("", address):
        advice = f"start it with --history {shlex.quote(seen.address)}"
        if is_new:
            advice += (
                f", or first bring them: {shlex.join(['mqproto', 'store', 'copy', seen.address, address])}"
            )
    raise HistoryError(
        f"{address}: it does not have the ids of this gateway: {advice}; if they are lost: {adopting}"
    )


def adopt(db: Connection, life: str) -> str:
    """Declare that a history continues the one that had this life. Return which ids it lacks, as a text.

    `life` may also be the history's own life.

    Raises:
        UsageError: there is no life of this name.
    """
    if not LIFE.fullmatch(life):
        raise UsageError(
            f"{life!a} is not a life: type the command as the gateway has said it when it did not start"
        )
    own = db.execute(select(layouts)).one()
    date_s = newest_s(db)
    since = f"since {datetime.fromtimestamp(date_s, UTC):%Y-%m-%d %H:%M:%S} UTC" if date_s else "of before"
    lacks = f"ids {since} are unknown: what has one of them is processed again when it is handed in again"
    before = " ".join({own.life: 0, life: 0} | dict.fromkeys(own.lives_before.split()))
    db.execute(update(layouts).values(life=token_hex(LIFE_BYTES), lives_before=before, lacks=lacks))
    return lacks
