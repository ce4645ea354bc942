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
    """A topology is not valid, or lacks a name. The text is one line that says what to do.

    lacks: the missing name; empty for other errors.
    """

    def __init__(self, text: str, lacks: str = "") -> None:
        super().__init__(text)
        self.lacks = lacks


def nearest(name: str, known: Collection[str]) -> str:
    """Return the end of an error about an unknown name: the most similar name, or all known names."""
    folded = {other.casefold(): other for other in known}
    if near := get_close_matches(name.casefold(), folded, 1):
        return f"did you mean {folded[near[0]]!r}?"
    return f"there is {', '.join(known)}" if known else "there is none"


def nearest_queue(name: str, known: Collection[str]) -> str:
    """Return the end of an error about an unknown queue, which may be meant as a queue of another system."""
    end = nearest(name, known)
    meant = None if end.endswith("?") else guess(name)
    return f"{meant.reason}; write {direct_name(meant.path)}" if meant else end


def refuse_twins(what: str, entries: Iterable[tuple[Key, str]]) -> None:
    """Refuse two entries with the same key. Each entry is a key and its owner; `what` is the word for the key in
    errors.
    """
    owners: dict[Key, str] = {}
    for key, owner in entries:
        if key in owners:
            raise TopologyError(f"{owners[key]} and {owner} {what}; change one")
        owners[key] = owner
