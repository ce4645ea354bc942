"""Compares a damaged capture with the whole one: false accusations, false sentences, and correctly reported
messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from zlib import crc32

from mqproto.captures.files.frame import Frame
from mqproto.wire import Guid, UserMessage, encode_packet
from tests.captures.truth.claims import NAMED_BYTES, Verdict
from tests.captures.truth.knowing import NEGATIVE, Known, Truth
from tests.captures.truth.saying import Tabled, decoded, in_order, in_pieces, is_one_sniffers, tabled
from tests.captures.truth.second import fits, fits_beyond, fits_elsewhere, fits_passed_over
from tests.captures.truth.stories import Stories
from tests.captures.truth.whole import Coverage

FOLLOWED: Final = 12
"""The number of messages that are followed in each capture."""
RUNS: Final = 3
"""How many runs the second analysis of some captures is divided into."""
SESSION_HEADER_BYTES: Final = 16
FACTS: Final[dict[str, frozenset[str]]] = {
    "confirmed": frozenset({"came", "seen to come", "said"}),
    "reached": frozenset({"came", "seen to come"}),
    "acknowledged": frozenset({"came", "said"}),
    "expired": frozenset({"refused"}),
    "refused": frozenset({"refused"}),
    "in flight": frozenset({"did not come"}),
    "lost from view": frozenset(),
    "not known": frozenset(),
}
"""The facts that each outcome states."""


@dataclass
class Score:
    """The results for captures that were damaged in one way.

    accused: the number of captures in which innocent senders are accused.
    false_faults: the number of faults of which they are accused.
    claims: the number of sentences in findings, --follow and stories.
    false_claims, unchecked: how many of these sentences are false, and how many are unchecked.
    there: the number of messages whose bytes are in the captures.
    right: how many of these messages are reported as in the whole capture.
    not_known: how many of them are rightly reported in less detail, because a second world (second.py) is possible.
    apart: the number of captures for which results differ: of decode and analyse, or of one run and several.
    complaints: what is wrong, and how often.
    """

    captures: int = 0
    accused: int = 0
    false_faults: int = 0
    claims: int = 0
    false_claims: int = 0
    unchecked: int = 0
    there: int = 0
    right: int = 0
    not_known: int = 0
    apart: int = 0
    complaints: Counter[str] = field(default_factory=Counter)

    def add(self, other: Score) -> None:
        """Add the counts of another score."""
        for name in self.__dataclass_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, mine + theirs)

    @property
    def share(self) -> float:
        """Return the fraction of correctly reported messages among those whose bytes are there."""
        return (self.right + self.not_known) / self.there if self.there else 1.0


def judged(truth: Truth, files: Sequence[Sequence[Frame]], folder: Path, *, runs: bool = False) -> Score:
    """Compare everything that is said about a damaged capture with the whole capture.

    Args:
        files: the frames of the damaged capture, with their numbers in the whole one.
        folder: a folder that does not exist yet.
        runs: whether to also analyze the capture piece by piece, in several runs.
    """
    score = Score(captures=1)
    said = tabled(folder, files)
    coverage = Coverage(truth.whole, in_order(files))
    followed = _chosen(truth, said)
    told = decoded(files)
    claims = Stories(truth, coverage, told)
    for finding in told.findings:
        _claim(score, f"{finding.severity} {finding.code}", finding.text, claims.of_finding(finding))
    for name, history in told.follow(followed).items():
        for sentence, holds in claims.of_history(name, history):
            _claim(score, "--follow", sentence, holds)
    for name in followed:
        for sentence, holds in claims.of_story(name, said.stories.get(name, [])):
            _claim(score, "story", sentence, holds)
    if said.series == 1:
        _agree(score, Counter((str(each.severity), each.code, each.text) for each in told.findings), said)
    else:
        _accused_in_tables(score, truth, said)
    if runs and len(files) == 1 and is_one_sniffers(in_pieces(files[0], RUNS)):
        again = tabled(folder.with_name(f"{folder.name}-runs"), files, runs=RUNS, stories=False)
        apart = [name for name, outcome in said.outcomes.items() if again.outcomes.get(name) != outcome]
        if apart:
            score.apart = 1
            score.complaints["run by run: another outcome"] += len(apart)
    score.accused = int(score.false_faults > 0)
    _outcomes(score, truth, coverage, said)
    return score


def _agree(score: Score, ours: Counter[tuple[str, str, str]], said: Tabled) -> None:
    """Check that `mqproto decode` and `mqproto analyse` have the same findings."""
    theirs: Counter[tuple[str, str, str]] = Counter()
    for (severity, code, _, text), count in said.findings.items():
        theirs[severity, code, text] += count
    if ours != theirs:
        score.apart = 1
        example = next(iter((ours - theirs) or (theirs - ours)))
        score.complaints[f"decode and analyse: {' '.join(example[:2])}"] += 1


def _accused_in_tables(score: Score, truth: Truth, said: Tabled) -> None:
    """Check accusations only by their codes, because packets are numbered differently if there are several captures."""
    known = {code for severity, code, _, _ in truth.tabled.findings if severity == "fault"}
    for (severity, code, _, text), count in said.findings.items():
        if severity == "fault" and code not in known:
            _claim(score, f"fault {code}", text, Verdict.FALSE, count)


def _chosen(truth: Truth, said: Tabled) -> list[str]:
    """Choose the messages to follow; those whose outcome differs from that in the whole capture come first."""
    whole = truth.tabled.outcomes
    by_chance = {name: crc32(name.encode()) for name in truth.messages}
    names = sorted(by_chance, key=lambda name: (said.outcomes.get(name) == whole.get(name), by_chance[name]))
    return names[:FOLLOWED]


def _claim(score: Score, where: str, sentence: str, holds: Verdict, count: int = 1) -> None:
    score.claims += count
    if holds is Verdict.TRUE:
        return
    if holds is Verdict.UNCHECKED:
        score.unchecked += count
        score.complaints[f"unchecked: {where}: {sentence}"] += count
    elif where.startswith("fault "):
        score.false_faults += count
        score.complaints[f"false {where}: {sentence}"] += count
    else:
        score.false_claims += count
        score.complaints[f"false, {where}: {sentence}"] += count


def _outcomes(score: Score, truth: Truth, coverage: Coverage, said: Tabled) -> None:
    """Check each message whose bytes are there: it has to be reported as in the whole capture, or rightly as
    unknown.
    """
    pending: list[tuple[Known, str, str]] = []
    for name, known in truth.messages.items():
        if not any(_is_there(truth, coverage, number) for number in known.crossings):
            continue
        whole, told = truth.tabled.outcomes[name], said.outcomes.get(name, "not found")
        score.there += 1
        if told == whole or (told == "in flight" and not _came(truth, coverage, known)):
            score.right += 1
        elif told not in FACTS or not FACTS[told] <= true_of(truth, coverage, known, whole):
            score.complaints[f"told {told}, is {whole}"] += 1
        else:
            pending.append((known, whole, told))
    for known, whole, told in pending:
        if _is_open(truth, coverage, known, whole, told):
            score.not_known += 1
        else:
            score.complaints[f"told {told}, is {whole}, and no second world fits"] += 1


def _is_there(truth: Truth, coverage: Coverage, number: int) -> bool:
    """Return whether a message's packet is there; if frames are cut, everything before its body is enough."""
    span = truth.whole.spans[number]
    return coverage.has(span, head_bytes(truth, number) if coverage.is_cut else None)


def _facts(truth: Truth, coverage: Coverage, known: Known, whole: str) -> set[str]:
    facts = set(FACTS.get(whole, ()))
    if _came(truth, coverage, known):
        facts |= {"came", "seen to come"}
    if not any(coverage.has(truth.whole.spans[number], NAMED_BYTES) for number in known.arrivals):
        facts.discard("seen to come")
    return facts


def true_of(truth: Truth, coverage: Coverage, known: Known, whole: str) -> set[str]:
    """Return the true facts about a message.

    Before a message is refused, OrderAcks may have said that it has arrived.
    """
    facts = _facts(truth, coverage, known, whole)
    refusals = set(_refusals(truth, known))
    said = [number for number in (*known.said, *known.covering) if number not in refusals]
    if "refused" in facts and any(
        truth.whole.packets[number].frame <= coverage.last_frame for number in said
    ):
        facts.add("said")
    return facts


def _refusals(truth: Truth, known: Known) -> Iterator[int]:
    for number in (*known.final_acks, *known.admin_acks):
        message = truth.sights[number].message
        if message is not None and message.properties.message_class & NEGATIVE:
            yield number


def _came(truth: Truth, coverage: Coverage, known: Known) -> bool:
    """Return whether a message arrived before the end of the damaged capture."""
    return any(truth.whole.packets[number].frame <= coverage.last_frame for number in known.arrivals)


def _is_open(truth: Truth, coverage: Coverage, known: Known, whole: str, told: str) -> bool:
    """Whether a second world is possible in which the unreported facts are different."""
    lacking = _facts(truth, coverage, known, whole) - FACTS[told]
    is_unsaid = "said" in lacking
    for fact, sayers in (("refused", list(_refusals(truth, known))), ("said", known.said)):
        is_open = fact not in lacking or _may_be_others(truth, coverage, sayers)
        if not is_open and (fact == "refused" or not _is_passed_over(truth, coverage, known)):
            return False
        lacking.discard(fact)
    if "came" in lacking or "seen to come" in lacking:
        if _may_be_others(truth, coverage, known.arrivals):
            return True
        # Who says that it came cannot have said so then: that may have been something else as well.
        if is_unsaid and _may_be_others(truth, coverage, {*known.arrivals, *known.said, *known.covering}):
            return True
        manager = next((truth.sights[number].hop[1] for number in known.arrivals), None)
        return isinstance(manager, bytes) and fits_elsewhere(truth, coverage, Guid(manager))
    if "did not come" in lacking:
        largest = max((len(truth.whole.packets[number].data) for number in known.crossings), default=0)
        if any(
            span.end - span.start >= largest and coverage.lacks(span) for span in truth.whole.spans.values()
        ):
            return True
        # Who lost frames may have lost the last.
        return coverage.is_lossy and fits_beyond(truth, known)
    return True


def _is_passed_over(truth: Truth, coverage: Coverage, known: Known) -> bool:
    """Return whether all acknowledgments of a message may be about other messages.

    This is so if a lost message may have passed this one over.
    """
    own = [*known.final_acks, *known.admin_acks]
    return _may_be_others(truth, coverage, own) and fits_passed_over(truth, coverage, known)


def _may_be_others(truth: Truth, coverage: Coverage, packets: Iterable[int]) -> bool:
    """Return whether all of these packets may have been different ones; packets after the capture's end do not
    matter.
    """
    needed = [number for number in packets if truth.whole.packets[number].first_frame <= coverage.last_frame]
    return not needed or fits(truth, coverage, needed)


def head_bytes(truth: Truth, number: int) -> int:
    """Return how many bytes of a message come before its body."""
    packet = truth.whole.packets[number].packet
    assert isinstance(packet, UserMessage)
    bare = replace(packet, properties=replace(packet.properties, message_body=b""))
    return len(encode_packet(bare)) - SESSION_HEADER_BYTES * (packet.session is not None)


def lines(scores: dict[str, Score]) -> Iterator[str]:
    """Yield the table of scores, line by line."""
    head = ["kind", "captures", "accused", "faults", "sentences", "false"]
    head += ["unchecked", "there", "right", "open", "share", "apart"]
    rows = [head]
    for kind, score in scores.items():
        said = score.accused, score.false_faults, score.claims, score.false_claims, score.unchecked
        counts = score.captures, *said, score.there, score.right, score.not_known
        rows.append([kind, *(f"{count:,}" for count in counts), f"{score.share:.1%}", f"{score.apart}"])
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    for row in rows:
        rest = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield f"{row[0]:<{widths[0]}}  {'  '.join(rest)}"
