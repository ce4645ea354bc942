"""Objects that are kept from run to run: every Python and every later version reads them unchanged.

Foreign bytes do nothing.
"""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.decode.findings import Severity
from mqproto.captures.decode.sessions.connections import Stage
from mqproto.captures.decode.sight import Kind
from mqproto.captures.framing import StreamCount
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.direction import Ending, Stream
from mqproto.captures.net.recent import Held
from mqproto.captures.net.sender import Sender
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.kept import state, state_schema
from mqproto.captures.pipeline.kept.state import StateError, decoded, encoded, records
from mqproto.captures.pipeline.reading.growth import Growth
from mqproto.captures.pipeline.reading.packets.flows import OpenPair
from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.captures.pipeline.stages.sequences.sequences import SequenceStage
from mqproto.captures.pipeline.stages.sessions.sessions import SessionStage
from mqproto.captures.pipeline.stages.tasks.checkpoint import Past
from mqproto.wire.classes import MessageClass

ENDS = Endpoint("10.0.0.1", 49152), Endpoint("10.0.0.2", 1801)
KEPT = Path(__file__).with_name("kept.json")
"""The file of the objects that runs kept in the middle of two captures.

At that time, growth.FORM was 15 and checkpoint.FORM was 10.
"""


def things() -> st.SearchStrategy[Any]:
    """Draw collections of plain values, of other collections, and of our own objects."""
    plain: st.SearchStrategy[Any] = st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.binary(max_size=4)
    )
    of_ours = st.sampled_from([Ending.OPEN, Kind.ORDER_ACK, *ENDS])
    keys = st.one_of(plain, of_ours, st.tuples(plain, of_ours))

    def holding(held: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(held, max_size=3)
        pairs = st.dictionaries(keys, held, max_size=3)
        return st.one_of(
            some,
            some.map(tuple),
            st.builds(deque, some, st.sampled_from([None, 2])),
            pairs,
            pairs.map(OrderedDict),
            pairs.map(lambda pairs: defaultdict(list, pairs)),
            st.sets(keys, max_size=3),
            st.frozensets(keys, max_size=3),
            st.dictionaries(keys, st.integers(0, 9), max_size=3).map(Counter),
            st.binary(max_size=4).map(bytearray),
            pairs.map(lambda pairs: Growth(crossings=pairs)),
        )

    return st.recursive(st.one_of(plain, of_ours), holding, max_leaves=12)


def kinds_in(thing: Any) -> Any:
    """Return the types of an object and of everything in it.

    They are needed because equal objects may have different types.
    """
    own = type(thing), getattr(thing, "maxlen", None), getattr(thing, "default_factory", None)
    if isinstance(thing, dict):
        return own, [(kinds_in(key), kinds_in(value)) for key, value in thing.items()]
    if isinstance(thing, set | frozenset):
        return own, Counter(map(repr, map(kinds_in, thing)))
    if isinstance(thing, list | tuple | deque):
        return own, [*map(kinds_in, thing)]
    return own, kinds_in(thing.crossings) if isinstance(thing, Growth) else None


@given(things())
def test_what_is_kept_comes_back(thing: Any) -> None:
    [found] = decoded(encoded([thing]), list)
    assert found == thing
    assert kinds_in(found) == kinds_in(thing)


def test_those_who_shared_a_thing_share_it_again() -> None:
    one, other = Stream(7, *ENDS), Stream(7, ENDS[1], ENDS[0])
    one.opposite, other.opposite = other, one
    held = Held()
    [first, second, by_stream, sender] = decoded(
        encoded([one, other, {one: "one", other: "other"}, Sender(one, held)]), list
    )
    assert first.opposite is second
    assert second.opposite is first
    assert by_stream[first], by_stream[second] == ("one", "other")
    assert sender.stream is first


@pytest.mark.parametrize(
    "kind", [Ending, Side, Stage, Severity, Kind, Outcome, MessageClass], ids=lambda kind: str(kind.__name__)
)
def test_a_member_of_an_enumeration_comes_back_as_itself(kind: type[Enum]) -> None:
    found = decoded(encoded(list(kind)), list)
    assert all(one is other for one, other in zip(found, kind, strict=True))


def test_every_python_writes_the_same() -> None:
    """Every Python writes the same.

    If a Python fails this test, the others cannot add to tables that it wrote, and it cannot add to theirs.
    """
    kinds = [["list"], ["ending"], ["Counter"], ["endpoint", "host", "port"]]
    entries = [[0, [1], [2], [3]], [1, "open"], [2, "ARP", 2], [3, "10.0.0.1", 49152]]
    assert json.loads(encoded([Ending.OPEN, Counter(ARP=2), ENDS[0]])) == [1, kinds, entries]


@contextmanager
def schema(records: Mapping[str, str], defaults: Mapping[tuple[str, str], Any]) -> Iterator[None]:
    """Use the schema of another version in the block."""
    caches = state.records, state._by_kind
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "RECORDS", records)
        patch.setattr(state, "DEFAULTS", defaults)
        for each in caches:
            each.cache_clear()
        yield
    for each in caches:
        each.cache_clear()


def test_a_later_version_reads_what_had_other_fields_and_other_classes() -> None:
    counts = state_schema.RECORDS["stream-count"]
    _, first, *since = records()["stream-count"].fields
    earlier = {**state_schema.RECORDS, "stream-count": f"{counts}: stream {first}"}
    with schema(earlier, {}):
        kept = encoded(StreamCount(Stream(7, *ENDS)))
    with pytest.raises(
        StateError, match=f"^a stream-count of another version, of which nothing says its {since[0]}$"
    ):
        decoded(kept, StreamCount)
    with schema(state_schema.RECORDS, {("stream-count", name): int for name in since}):
        assert decoded(kept, StreamCount).stream.source == ENDS[0]
        assert {getattr(decoded(kept, StreamCount), name) for name in since} == {0}
    # A field that has gone is left out, and what has another class now is one of that.
    later = {
        **state_schema.RECORDS,
        "stream-count": f"{counts}: stream",
        "endpoint": f"{__name__}.Elsewhere",
    }
    with schema(later, {}):
        assert repr(decoded(kept, StreamCount).stream.source) == repr(Elsewhere(*ENDS[0]))


class Elsewhere(NamedTuple):
    """A class that may replace Endpoint in another version."""

    host: str
    port: int


def test_what_no_field_is_known_for_is_not_lost_without_a_word() -> None:
    sender: Any = Sender(Stream(7, *ENDS), Held())
    sender.since = 1
    with pytest.raises(StateError, match="sender has more than its fields: since"):
        encoded(sender)
    with pytest.raises(StateError, match="Path is nothing that is kept"):
        encoded([KEPT])
    with pytest.raises(StateError, match="a defaultdict of <lambda> is nothing that is kept"):
        encoded(defaultdict(lambda: 7))


def test_what_an_earlier_version_kept_is_read() -> None:
    """What an earlier version kept is still read.

    If this fails, `DEFAULTS` lacks a new field, a record has lost its name, or a new record is not in KEPT. In the last
    case, add a list with one such record to the end of KEPT.
    """
    kept = json.loads(KEPT.read_text("utf-8"))
    kinds = {kind.__name__: kind for kind in (Growth, OpenPair, Past, SequenceStage, SessionStage, list)}
    assert kept.keys() == kinds.keys()
    there = {kind[0] for every in kept.values() for _, held, _ in every for kind in held}
    assert there >= records().keys()
    for name, every in kept.items():
        for data in every:
            found = decoded(json.dumps(data).encode(), kinds[name])
            again = decoded(encoded(found), kinds[name])
            assert len(encoded(again)) == len(encoded(found))


class Command:
    """An object that runs a command when it is unpickled, as a stranger might send."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/should-not-be-there",)


GROWTH = encoded(Growth(totals=Totals(other_frames=Counter({"ARP": 2})), waiting=b"?"))


@given(st.integers(0, len(GROWTH) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_what_a_stranger_has_written_is_read_or_refused(at: int, other: bytes, gone: int) -> None:
    with suppress(StateError):
        assert isinstance(decoded(GROWTH[:at] + other + GROWTH[at + gone :], Growth), Growth)


def as_json(written: object) -> bytes:
    return json.dumps(written).encode()


@pytest.mark.parametrize(
    ("foreign", "why"),
    [
        (pickle.dumps(Command()), "it is damaged: "),
        (b"", "it is damaged: "),
        (as_json([2, [], []]), "it has form 2, and this program reads 1"),
        (as_json([1, [["system"]], [[0, "ls"]]]), "system is nothing that is kept"),
        (as_json([1, [["defaultdict"]], [[0, "system", 1, 2]]]), "it is damaged: "),
        (as_json([1, [["frozenset"]], [[0, [0]]]]), "it is damaged: "),
        (as_json([1, [["frozenset"]], [[0, []]]]), "it is damaged: "),
        (encoded(list(ENDS)), "it holds no Growth"),
    ],
)
def test_what_is_nothing_that_was_kept_is_refused(foreign: bytes, why: str) -> None:
    with pytest.raises(StateError, match=f"^{why}"):
        decoded(foreign, Growth)
