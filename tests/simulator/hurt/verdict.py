"""The conclusions from a trial: how producers' and consumers' lists differ, and which differences were named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from tests.simulator.hurt.ledger import FLOWS, Account, body_of, digest, flow_of
from tests.simulator.hurt.operator import GIVEN_UP

AT_START: Final = 1
"""The phase in which nodes start on damaged stores."""
LETTERS: Final = ("deadxact", "deadletter")


class Outcome(StrEnum):
    """How a trial ends; the last five are failures.

    STUCK means that some messages that nobody named are still waiting.
    """

    AT_START = "told at start"
    AT_READ = "told at read"
    HARMLESS = "harmless"
    NOTHING = "not hurt"
    SILENT = "SILENT"
    STUCK = "STUCK"
    REFUSED = "REFUSED FOR GOOD"
    BROKE = "BROKE"
    ALARM = "FALSE ALARM"


FAILURES: Final = frozenset({Outcome.SILENT, Outcome.STUCK, Outcome.REFUSED, Outcome.BROKE, Outcome.ALARM})


class Difference(NamedTuple):
    """A message that did not arrive exactly once, unaltered and in order at the place where it has to be.

    how: lost, doubled, altered, out of order, unknown.
    """

    label: str
    how: str
    place: str

    def __str__(self) -> str:
        return f"{self.label} is {self.how} in {self.place}"


def differences(account: Account, seed: int) -> Iterator[Difference]:
    """Compare the accepted messages with the received ones; yield the differences."""
    for label, received in account.received.items():
        if label.partition("-")[0] not in FLOWS or label not in account.accepted.keys() | account.uncertain:
            yield Difference(label, "unknown", received[0][0])
            continue
        for place, what, _ in received:
            if what != digest(body_of(seed, label)):
                yield Difference(label, "altered", place)
    for label in account.accepted.keys() | account.uncertain:
        flow = flow_of(label)
        found = Counter(place for place, *_ in account.received.get(label, ()))
        ended = found[flow.end]
        for place in (flow.end, *flow.copies):
            # What was committed to when a node died was received then, or is received now; so with its copies.
            is_open = (label, place) in account.unanswered or (label, flow.end) in account.unanswered
            least = 0 if is_open or label in account.uncertain or (place != flow.end and not ended) else 1
            if found[place] < least:
                letter = next((where for where in LETTERS if found[where] and where != place), None)
                if letter is None:
                    yield Difference(label, "lost", place)
            elif found[place] > 1:
                yield Difference(label, "doubled", place)
    yield from _out_of_order(account)


def _out_of_order(account: Account) -> Iterator[Difference]:
    """Yield the orders that later ones have overtaken. A repeated order counts as doubled; only its first arrival
    counts here.
    """
    places = {label: place for place, label in enumerate(account.accepted)}
    newest, seen = -1, set[str]()
    for queue, label in account.order:
        if queue == "orders" and label in places and label not in seen:
            seen.add(label)
            if places[label] < newest:
                yield Difference(label, "out of order", queue)
            newest = max(newest, places[label])


class Verdict(NamedTuple):
    """The verdict about a trial.

    told: the differences whose messages were named.
    silent: all other differences, lost messages first; messages that still wait somewhere are stuck.
    """

    outcome: Outcome
    told: list[Difference]
    silent: list[Difference]


def judged(
    account: Account,
    seed: int,
    names: Callable[[Account], set[str]],
    waiting: Callable[[], set[str]],
    *,
    is_kill: bool,
    is_done: bool,
) -> Verdict:
    """Judge a trial whose processes have ended.

    Args:
        names: returns the labels that were named; called only if something differs.
        waiting: returns the labels that still wait in a store at the end; called only if a difference was not named.
        is_done: whether anything was damaged: the file or page to damage may not exist, and a disk may fail too late.
        is_kill: whether nothing was damaged, so that each printed line is a false alarm.
    """
    found = list(differences(account, seed))
    whose = names(account) if found else set()
    told = [difference for difference in found if difference.label in whose]
    silent = [difference for difference in found if difference.label not in whose]
    still = waiting() if silent else set()
    stuck = [one._replace(how="stuck") for one in silent if one.how == "lost" and one.label in still]
    silent = [one for one in silent if not (one.how == "lost" and one.label in still)]
    if silent or stuck:
        outcome = Outcome.SILENT if silent else Outcome.STUCK
    elif any(what.startswith(GIVEN_UP) for *_, what in account.said):
        outcome = Outcome.REFUSED
    elif is_kill and account.said:
        outcome = Outcome.ALARM
    elif any(phase == AT_START for phase, *_ in account.said):
        outcome = Outcome.AT_START
    elif account.said:
        outcome = Outcome.AT_READ
    else:
        outcome = Outcome.HARMLESS if is_done else Outcome.NOTHING
    return Verdict(outcome, told, silent + stuck)
