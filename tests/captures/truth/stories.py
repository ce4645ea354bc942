"""Checks whether each sentence of a story in the report is true, as a claim."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from mqproto.captures.decode.facts import NodeKey
from mqproto.captures.pipeline.tables.lists import key_text
from mqproto.wire import MessageClass
from tests.captures.truth.claims import Claims, Verdict, bare, verdict
from tests.captures.truth.knowing import NEGATIVE, Known


class Stories(Claims):
    """The claims about a damaged capture, including stories.

    In the methods, "it" is the message that a story is about.
    """

    def of_story(self, name: str, sentences: list[str]) -> Iterator[tuple[str, Verdict]]:
        """Check the sentences of the report's story about a message; the verdict comes first."""
        known = self.truth.messages.get(name)
        whole = {
            bare(each) for sentence in self.truth.tabled.stories.get(name, []) for each in _clauses(sentence)
        }
        for sentence in sentences:
            for clause in _clauses(sentence):
                if known is None:
                    yield clause, Verdict.FALSE
                elif bare(clause) in whole:
                    yield clause, Verdict.TRUE
                else:
                    yield clause, self._of_clause(known, clause)

    def _of_clause(self, known: Known, clause: str) -> Verdict:
        for pattern, check in _CLAUSES:
            if found := re.search(pattern, clause):
                return verdict(check(self, known, found))
        return Verdict.UNCHECKED

    def told_home(self, known: Known) -> bool:
        """Return whether the message's source was told that it arrived."""
        is_told = any(self.truth.sights[each].hop[1] == known.key[0] for each in known.said)
        return is_told or self.covered_home(known)

    def is_covered(self, known: Known) -> bool:
        """Return whether a positive FinalAck of a later number says that the message arrived."""
        return bool(known.covering)

    def _arrivals_of(self, known: Known, text: str) -> Iterator[list[int]]:
        """For each named number of the message's sequence, yield the packets that brought that number to its
        destination.
        """
        for first, last in re.findall(r"([\d,]+)(?:–([\d,]+))?", text):
            low = int(first.replace(",", ""))
            for number in range(low, int((last or first).replace(",", "")) + 1):
                other = (
                    None if known.sequence is None else self.truth.numbered.get((*known.sequence[:2], number))
                )
                yield [] if other is None else other.arrivals

    def all_missing(self, known: Known, text: str, before: int | None = None) -> bool:
        """Return whether none of the named numbers of the message's sequence reached their destination.

        If `before` is given, only arrivals before that packet count.
        """
        return known.sequence is not None and not any(
            before is None or each < before
            for arrivals in self._arrivals_of(known, text)
            for each in self.then(arrivals)
        )

    def unseen(self, known: Known, text: str, *, ever: bool, some: bool) -> bool:
        """Return whether the damaged capture lacks the arrivals of all named numbers or, with `some`, of at least one.

        An arrival counts only if it came before that of this message; with `ever`, it always counts. Packets of
        connections with losses are read late, so their order in the capture is not enough to show what came before.
        """
        came, first = min(
            ((self.place[each], each) for each in known.arrivals if each in self.place), default=(0, 0)
        )
        seen = [
            any(
                self.shows([each]) and (ever or (self.place.get(each, came) < came and each < first))
                for each in arrivals
            )
            for arrivals in self._arrivals_of(known, text)
        ]
        return known.sequence is not None and not (all(seen) if some else any(seen))

    def never_answered(self, known: Known, label: str) -> bool:
        """Return whether no crossing to that endpoint was acknowledged by the end of the capture."""
        received, _ = self.answered
        to = [number for number in known.crossings if self.truth.sights[number].destination == label]
        return not any(self.then([received[number]]) for number in to if number in received)

    def crossed(self, known: Known, *, source: str = "", destination: str = "") -> list[int]:
        """Return the packets that carried the message from or to a host, given the name of that host.

        The name is the beginning of a GUID if the damaged capture does not show where the host is.
        """
        return [
            number
            for number, hop in known.crossings.items()
            if _is_called(source, self.truth.sights[number].source, hop[0])
            and _is_called(destination, self.truth.sights[number].destination, hop[1])
        ]

    def kept(self, known: Known, label: str) -> bool:
        """Return whether a host reported that it has the message, and the capture does not show it being sent on later.

        The message may have passed the host earlier, on a path that leads back to it.
        """
        received, _ = self.answered
        to = [number for number in self.crossed(known, destination=label) if number in received]
        on = [number for number in self.crossed(known, source=label) if to and number > to[-1]]
        return bool(to) and not self.shows(on)

    def unanswered(self, known: Known, source: str, destination: str) -> bool:
        """Return whether the damaged capture shows the message crossing between two hosts, unacknowledged.

        It must show a crossing, but lack the first acknowledgment of every crossing that it shows.
        """
        received, _ = self.answered
        to = self.crossed(known, source=source, destination=destination)
        answers = [received[number] for number in to if number in received and self.shows([number])]
        return self.shows(to) and not self.there(answers)

    def came_again(self, known: Known, label: str, how: str) -> bool:
        """Return whether the damaged capture shows the message arriving at a host more than once, and the answers are
        as stated.

        Shuffled frames may show a later copy first, with its answer after both. Frames of two interfaces have no order.
        """

        def at(number: int) -> tuple[int, int]:
            seen = self.seen[self.place[number]] if number in self.place else None
            return (0, 0) if seen is None else (seen.frame, seen.interface.number)

        received, _ = self.answered
        to = sorted((each for each in self.crossed(known, destination=label) if self.shows([each])), key=at)
        if len(to) < 2:
            return False
        if "do not tell" not in how:
            return "has answered" not in how or any(each in received for each in to[:-1])
        (answer, by), (again, interface) = at(received.get(to[0], 0)), at(to[1])
        return not 0 < answer < again or by != interface or self.lacks_of(to[0])

    def lacks_of(self, number: int) -> bool:
        """Return whether the damaged capture lacks anything of the connection that a packet crossed.

        All packets of the connection are checked, including those that have only counts.
        """
        connection = self.truth.whole.spans[number].stream[0]
        return any(
            span.stream[0] == connection and self.coverage.lacks(span)
            for span in self.truth.whole.spans.values()
        )

    def negative(self, known: Known) -> bool:
        """Return whether a queue manager refused the message."""
        return any(MessageClass[each] & NEGATIVE for each in self.classes(known))


_CLAUSES: Final[list[tuple[str, Callable[[Stories, Known, re.Match[str]], bool]]]] = [
    (
        r"^It came to its destination.*\. Of its sequence, (.*) were not( all)? seen to come",
        lambda claims, known, found: (
            bool(known.arrivals) and claims.unseen(known, found[1], ever=True, some=bool(found[2]))
        ),
    ),
    (
        r"^It came to its destination.*which has to hold it: of its sequence, (.*) never came",
        lambda claims, known, found: bool(known.arrivals) and claims.all_missing(known, found[1]),
    ),
    (
        r"^It came to its destination.*its source was told so",
        lambda claims, known, found: bool(known.arrivals) and claims.told_home(known),
    ),
    (r"^It came to its destination", lambda claims, known, found: bool(known.arrivals)),
    (
        r"^Nothing more was said about it in these captures",
        lambda claims, known, found: not claims.there(known.said),
    ),
    (
        r"^Its destination said that it came",
        lambda claims, known, found: bool(known.said) or claims.is_covered(known),
    ),
    (r"^The captures do not show it come", lambda claims, known, found: not claims.shows(known.arrivals)),
    (r"^It (expired|was refused)", lambda claims, known, found: claims.negative(known)),
    (
        r"^\S+ sent it to (\S+) .*no answer came",
        lambda claims, known, found: claims.never_answered(known, found[1]),
    ),
    (
        r"^(\S+) answered for it, and was not seen to send it on",
        lambda claims, known, found: claims.kept(known, found[1]),
    ),
    (
        r"^(\S+) was seen to send it to (\S+) .*no answer was seen",
        lambda claims, known, found: claims.unanswered(known, found[1], found[2]),
    ),
    (
        r"^(\S+) was seen to send it to (\S+) (?:once|[\d,]+ times)\.$",
        lambda claims, known, found: claims.shows(
            claims.crossed(known, source=found[1], destination=found[2])
        ),
    ),
    (
        r"^Whether (that answered|it was acknowledged|it went on), the captures cannot say"
        r"|^The captures lack some of the traffic|^It (was last seen|(did not ask|asked) to be kept)",
        lambda claims, known, found: True,
    ),
    (r"^went from ", lambda claims, known, found: bool(known.crossings)),
    (
        r"^\S+ answered for it$",
        lambda claims, known, found: any(number in claims.answered[0] for number in known.crossings),
    ),
    (
        r"^came to (\S+) again, (.*)",
        lambda claims, known, found: claims.came_again(known, found[1], found[2]),
    ),
    (
        r"had to hold it: of its sequence, (.*) had not come",
        lambda claims, known, found: (
            bool(known.arrivals) and claims.all_missing(known, found[1], before=min(known.arrivals))
        ),
    ),
    (
        r"^of its sequence, (.*) had not( all)? been seen to come: if they had not, \S+ had to hold it",
        lambda claims, known, found: (
            bool(known.arrivals) and claims.unseen(known, found[1], ever=False, some=bool(found[2]))
        ),
    ),
    (r"^all before it had come", lambda claims, known, found: bool(known.arrivals)),
    (r"^its source got the OrderAck", lambda claims, known, found: claims.told_home(known)),
    (r"^an OrderAck for it was seen", lambda claims, known, found: bool(known.order_acks)),
    (
        r"^a FinalAck of a later message of its sequence said that this one came too",
        lambda claims, known, found: claims.is_covered(known),
    ),
    (
        r"^an? (?:FinalAck|administration acknowledgment) said (\S+)",
        lambda claims, known, found: found[1] in set(claims.classes(known)),
    ),
]
"""Patterns for the sentences of stories, each with its check; the first pattern that matches counts."""


def _is_called(label: str, end: str, key: NodeKey) -> bool:
    """Return whether one end of a hop has this name; true if the name is empty."""
    host = label.rpartition(":")[0] or label
    return not label or end.startswith(f"{host}:") or key_text(key).startswith(label)


def _clauses(sentence: str) -> list[str]:
    return [each for each in re.split(r"(?<=[a-z)]\.) (?=[A-Z])", sentence) if each]
