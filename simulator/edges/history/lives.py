"""Sees to it that no gateway uses a shared history that lacks its ids.

A history has a life, which is a random name, and a time of its own (forgetting.py). The store of a gateway's node keeps
both as they were last seen:

    the store                 the history                           the gateway
    has seen none             any                                   starts
    has seen its life         its time is the same or later         starts
    has seen its life         its time is earlier, so it was put    does not start
                              back
    has seen another life     any                                   does not start

An origin is in the envelope of each message that has an id, so that a trigger knows whether an id was forgotten since.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from sqlalchemy import Connection, select

from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.tables import layouts

APART_S: Final = 10.0
"""The maximum difference, in seconds, between two programs' values of a history's own time.

It includes a margin.
"""


LIFE_DIGITS: Final = 15
"""How many digits of a life's name fit into a counter of a store."""


class HistorySeen(NamedTuple):
    """What the store of a gateway's node knows about the shared history.

    life: the name of the history's life, or its first LIFE_DIGITS; empty if it has seen none.
    now_s: the last known time on the history's own clock.
    """

    life: str
    now_s: float


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


def see_that_it_lacks_none(db: Connection, seen: HistorySeen, address: str) -> None:
    """Check that a history has all ids that it had when it was last seen.

    Raises:
        HistoryError: it lacks some.
    """
    own = db.execute(select(layouts)).one()
    is_same = own.life.startswith(seen.life[:LIFE_DIGITS])
    if not seen.life or (is_same and seen.now_s <= own.now_s):
        return
    if is_same:
        raise HistoryError(
            f"{address}: it was put back, and lacks the newest ids of this gateway: put back a newer one"
        )
    raise HistoryError(f"{address}: it does not have the ids of this gateway: name the one that it had")
