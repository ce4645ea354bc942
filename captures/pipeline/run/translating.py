"""Finds connections of a series that reappear behind address translation, as in
mqproto.captures.translation.

All ranges are first read without translations. Ranges whose openings show translated connections are read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from mqproto.captures.net.streams import CONNECTION_LIMIT, Ends, ends_of
from mqproto.captures.pipeline.reading.growth import Growth
from mqproto.captures.pipeline.reading.reading import RangeRead
from mqproto.captures.translation import Crossings, Translation, Translations


class Translated:
    """The address translations that are known once all ranges have been read.

    Args:
        growth: the state before the new ranges.
        reads: the new ranges, in order.

    Attributes:
        in_force: translations that apply after these ranges, as in mqproto.captures.pipeline.reading.growth.Growth.
        crossings: all crossings up to now.
    """

    def __init__(self, growth: Growth, reads: Iterable[RangeRead]) -> None:
        translations = Translations(growth.translations)
        for read in reads:
            for early in read.openings:
                translations.take(early)
        self.crossings = Crossings(growth.crossings)
        self.crossings.add(translations.found)
        self._of: defaultdict[Ends, list[Translation]] = defaultdict(list)
        for each in (*growth.translations, *translations.found):
            self._of[ends_of(*each.way)].append(each)
        last = sorted((each[-1] for each in self._of.values()), key=lambda each: each.number)
        self.in_force = tuple(each for each in last if each.shown is not None)[-CONNECTION_LIMIT:]

    def within(self, read: RangeRead) -> tuple[Translation, ...]:
        """Return, in order, the translations that affect segments of a range."""
        between = {ends_of(early.source, early.destination) for early in read.openings} if self._of else ()
        found = (each for ends in between for each in self._of.get(ends, ()))
        return tuple(sorted(found, key=lambda each: each.number))
