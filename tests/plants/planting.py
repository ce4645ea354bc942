"""The form of a planted fault, and how it is planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from mqproto.base.errors import UsageError

Wrap = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault: the attribute that it replaces, the replacement, and the invariants that should notice it.

    owners: the objects that have the attribute.
    found_by: the invariants, any of which may be the first to break.
    """

    owners: tuple[object, ...]
    attribute: str
    wrap: Wrap
    found_by: frozenset[str]


PLANTS: Final[dict[str, Plant]] = {}
"""The faults, keyed by the names that the command line takes."""


def plant(
    owner: object, attribute: str, *found_by: str, also: tuple[object, ...] = ()
) -> Callable[[Wrap], Wrap]:
    """Register a function that makes the faulty attribute from the sound one.

    also: other owners that have imported the attribute under the same name.
    """

    def register(wrap: Wrap) -> Wrap:
        PLANTS[wrap.__name__.replace("_", "-")] = Plant((owner, *also), attribute, wrap, frozenset(found_by))
        return wrap

    return register


@contextmanager
def planted(name: str) -> Iterator[Plant]:
    """Run the block with one fault.

    Raises:
        UsageError: there is no fault of that name.
    """
    fault = PLANTS.get(name)
    if fault is None:
        raise UsageError(f"no fault is called {name!r}; there are: {', '.join(PLANTS)}")
    sound = vars(fault.owners[0])[fault.attribute]
    faulty = fault.wrap(sound)
    try:
        for owner in fault.owners:
            setattr(owner, fault.attribute, faulty)
        yield fault
    finally:
        for owner in fault.owners:
            setattr(owner, fault.attribute, sound)
