"""Errors about invalid topologies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from difflib import get_close_matches
from typing import TypeAlias, TypeVar

from mqproto.base.errors import UsageError
from mqproto.formatname import direct_name
from mqproto.formatname.path import guess

Key = TypeVar("Key", bound=Hashable)
Nearest: TypeAlias = Callable[[str, Collection[str]], str]


class TopologyError(UsageError):
    """A topology is not valid, or does not have a name that a caller used.

    The text is one line that says what to do.

    lacks: the name that is missing; empty for other errors.
    """

    def __init__(self, text: str, lacks: str = "") -> None:
        super().__init__(text)
        self.lacks = lacks


def nearest(name: str, known: Collection[str]) -> str:
    """Return the end of an error about an unknown name.

    It suggests the most similar known name, or else lists all of them.
    """
    folded = {other.casefold(): other for other in known}
    if near := get_close_matches(name.casefold(), folded, 1):
        return f"did you mean {folded[near[0]]!r}?"
    return f"there is {', '.join(dict.fromkeys(known))}" if known else "there is none"


def nearest_queue(name: str, known: Collection[str]) -> str:
    """Return the end of an error about an unknown queue.

    If no known name is similar, but the name looks like that of another system's queue, the text says how to write it.
    """
    end = nearest(name, known)
    meant = None if end.endswith("?") else guess(name)
    return f"{meant.reason}; write {direct_name(meant.path)}" if meant else end


def refuse_twins(what: str, entries: Iterable[tuple[Key, str]]) -> None:
    """Raise a TopologyError if two entries have the same key.

    Each entry is a key and its owner. The error names the two owners, followed by `what`.
    """
    owners: dict[Key, str] = {}
    for key, owner in entries:
        if key in owners:
            raise TopologyError(f"{owners[key]} and {owner} {what}; change one")
        owners[key] = owner
