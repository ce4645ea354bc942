"""Reports, from the document history, which triggers deliver from queues and which queues are held."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from mqproto.base.words import duration
from mqproto.simulator.edges.history.documents import Documents
from mqproto.simulator.edges.trigger.breaker import Held, state_in
from mqproto.simulator.edges.trigger.detection import scope_of
from mqproto.simulator.edges.trigger.leadership import has_ended
from mqproto.simulator.topology import places
from mqproto.simulator.topology.places import Place


@dataclass(frozen=True, slots=True)
class TriggerStanding:
    r"""The state of the triggers of one queue.

    queue: the queue's name, such as `destination\orders`.
    leader: the trigger that delivers; empty if the last one has resigned.
    has_ended: whether the leader's process has certainly ended, or there is no leader.
    held: why nothing is delivered; None if the queue is not held.
    """

    queue: str
    leader: str
    epoch: int
    has_ended: bool
    held: Held | None


def standings(place: Place, history: str = "") -> list[TriggerStanding]:
    """Return the state of the triggers of each queue from which a trigger has delivered, sorted by queue name.

    Args:
        history: the URL of the document history; empty for the file in the folder of the stores, if there is one.

    Raises:
        UsageError, HistoryError: the history is not available.
    """
    url = places.history_there(place.directory, history)
    if not url:
        return []
    with closing(Documents(url, None, only_reads=True)) as documents:
        found = documents.leaders(scope_of(""))
    return [
        TriggerStanding(
            scope.removeprefix(scope_of("")),
            leader.name,
            leader.epoch,
            not leader.name or has_ended(place.directory, leader.name),
            state_in(leader.note).held,
        )
        for scope, leader in found
    ]


def told(found: Iterable[TriggerStanding]) -> Iterator[str]:
    """Yield a line for each held queue, with the reason."""
    for one in found:
        if one.held is None:
            continue
        held, now_s = one.held, time.time()
        failures = f"{held.failures:,} failure" + "s in a row" * (held.failures != 1)
        left_s = held.probe_s - now_s
        when = f"in {duration(left_s)}" if left_s > 0 else "now"
        then = f"{one.leader} tries a message {when}"
        if one.has_ended:
            then = f"{one.leader or 'its trigger'} does not run: start it"
        yield (
            f"{one.queue} is held for {duration(now_s - held.since_s)}: its consumer fails ({held.cause}), {failures}; "
            f"{then}"
        )
