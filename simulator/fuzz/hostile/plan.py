"""The attacks of a run, with their order, numbers of attackers and duration. All of this follows from a seed and the
time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.base.errors import UsageError
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.fuzz.hostile.chain import ATTACKERS
from mqproto.simulator.fuzz.tactics.outofturn import HELD, TACTICS

KNOWN: Final = (
    "a cold list of queues",
    "a cold text",
    "unfinished packets",
    "large messages for nobody",
    "messages for nobody",
    "journals and dead letters",
    "forged sources",
    "a sequence beyond a neighbour's",
    "messages in a neighbour's name",
    "a session in a neighbour's name",
    "idle sessions in neighbours' names",
    "administration queues at made-up hosts",
    HELD,
    "many sessions",
    "half-open connections",
)
"""The attacks that once harmed our nodes. They come first, however little time there is."""
SHORTEST_S, LONGEST_S = 1.5, 4.0
ROUNDS: Final = 200
"""The number by which the whole time is divided to get an attack's duration, within the limits above."""
PLAIN_SHARE: Final = 0.75
"""The share of the time for links without TLS; the rest is for attackers at a neighbour's address."""
RESTARTS: Final = (
    "a session in a neighbour's name",
    "idle sessions in neighbours' names",
    "claims again and again",
)
"""The attacks during which a neighbour of the attacked node is killed and started again."""


class Form(NamedTuple):
    """How many attackers there are, and which addresses they have.

    spread: whether each attacker has an address of its own.
    as_neighbour: whether they use a neighbour's own address and name; the links then use TLS.
    """

    text: str
    attackers: int = 1
    spread: bool = False
    as_neighbour: bool = False


PLAIN_FORMS: Final = (
    Form("one attacker"),
    Form(f"{ATTACKERS} attackers at {ATTACKERS} addresses", ATTACKERS, spread=True),
    Form(f"{ATTACKERS} attackers at one address", ATTACKERS),
)
MANY: Final = Form("250 attackers at 250 addresses", 250, spread=True)
"""The form that replaces the first of PLAIN_FORMS for the tactic HELD.

A single attacker would have little effect.
"""
TLS_FORMS: Final = (Form("one at a neighbour's address", as_neighbour=True),)


@dataclass(frozen=True, slots=True)
class HostilePlan:
    """The settings that say what to run.

    only: the tactics to use, each in all forms, however long that takes; empty for all tactics that fit into the time.
    rounds: the maximum number of attacks with TLS, and also of those without; None for as many as fit into the time.
    timed: whether to judge throughput and times; promises that do not depend on the machine are always judged.
    patience_s: the number of seconds after an attack for which honest messages may be on their way before they count as
        blocked.
    directory: the folder in which a new folder is made for the stores; by default, the folder for temporary files.

    Raises:
        UsageError: there is no such tactic.
    """

    seed: int
    seconds: float
    only: tuple[str, ...] = ()
    rounds: int | None = None
    with_tls: bool = True
    timed: bool = True
    patience_s: float = 60.0
    directory: Path | None = None

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in TACTICS:
                raise UsageError(f"no attack is called {name!r}; there are: {', '.join(TACTICS)}")

    @property
    def attack_s(self) -> float:
        """The number of seconds that an attack lasts."""
        return min(max(self.seconds / ROUNDS, SHORTEST_S), LONGEST_S)

    def attacks(self, *, tls: bool) -> Iterator[tuple[str, Form]]:
        """Yield tactics and forms in the order of the attacks: each tactic once, then each again in another form."""
        forms = TLS_FORMS if tls else PLAIN_FORMS
        others = [name for name in TACTICS if name not in KNOWN]
        chance(self.seed, "order", str(tls)).shuffle(others)
        names = self.only or (*KNOWN, *others)
        passes = range(len(forms)) if self.only else count()
        everything = (
            (name, MANY if name == HELD and form is PLAIN_FORMS[0] else form)
            for turn in passes
            for index, name in enumerate(names)
            for form in (forms[(index + turn) % len(forms)],)
        )
        return islice(everything, self.rounds)
