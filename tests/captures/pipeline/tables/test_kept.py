"""Objects that are kept from run to run come back unchanged; foreign bytes do nothing."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import re
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import is_dataclass
from enum import Enum
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.decode.findings import Severity
from mqproto.captures.decode.sessions.connections import Stage
from mqproto.captures.decode.sight import Kind
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.direction import Ending, Stream
from mqproto.captures.net.recent import Held
from mqproto.captures.net.sender import Sender
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.reading import growth
from mqproto.captures.pipeline.reading.growth import Growth
from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.captures.pipeline.stages.tasks import checkpoint
from mqproto.captures.pipeline.tables import kept
from mqproto.captures.pipeline.tables.kept import StateError, decoded, encoded
from mqproto.wire.classes import MessageClass

ENDS = Endpoint("10.0.0.1", 49152), Endpoint("10.0.0.2", 1801)


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
    if isinstance(thing, set):
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


def test_a_class_that_is_not_kept_is_refused_before_it_is_written() -> None:
    with pytest.raises(StateError, match="PosixPath is nothing that is kept"):
        encoded([Path("x")])
    with pytest.raises(
        StateError, match="a defaultdict of something else than lists is nothing that is kept"
    ):
        encoded(defaultdict(lambda: 7))


def shape(kind: type) -> list[str]:
    """Return the fields of a class and its bases, with their types where these are declared."""
    found = [*map(str, getattr(kind, "__members__", ()))]
    for each in kind.__mro__:
        if each.__module__.startswith("mqproto."):
            for name, said in vars(each).get("__annotations__", {}).items():
                found.append(f"{name}: {getattr(said, '__forward_arg__', said)}")
            found += vars(each).get("__slots__", ())
            if not is_dataclass(each) and "__init__" in vars(each):
                found += re.findall(r"self\.(\w+)[^=\n]* = ", inspect.getsource(vars(each)["__init__"]))
    return found


def test_a_class_that_changes_raises_the_number_of_the_form() -> None:
    """If this fails, raise `growth.FORM` or `checkpoint.FORM`, and put the new digest here.

    Raise the FORM of the saved data that has objects of the changed class.
    """
    shapes = {
        f"{module}.{name}": shape(getattr(import_module(module), name))
        for module, names in kept.CLASSES.items()
        for name in names.split()
    }
    digest = blake2b(json.dumps(shapes, sort_keys=True).encode(), digest_size=8).hexdigest()
    assert (growth.FORM, checkpoint.FORM, digest) == (18, 18, "0ac451bc0474d385")


class Command:
    """An object that runs a command when it is unpickled, as a stranger might send."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/should-not-be-there",)


GROWTH = encoded(Growth(totals=Totals(other_frames=Counter({"ARP": 2})), waiting=b"?"))


@given(st.integers(0, len(GROWTH) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_what_a_stranger_has_written_is_read_or_refused(at: int, other: bytes, gone: int) -> None:
    with suppress(StateError):
        assert isinstance(decoded(GROWTH[:at] + other + GROWTH[at + gone :], Growth), Growth)


def as_json(*written: object) -> bytes:
    return json.dumps(written).encode()


@pytest.mark.parametrize(
    ("foreign", "why"),
    [
        (pickle.dumps(Command()), "it is damaged: "),
        (b"", "it is damaged: "),
        (as_json([], [], [0]), "it is damaged: "),
        (as_json([["os.system"]], [[0, ["ls"]]], [0]), "os.system is nothing that is kept"),
        (as_json([["builtins.eval"]], [[0, ["1"]]], [0]), "builtins.eval is nothing that is kept"),
        (as_json([["builtins.list"]], [[0, [[7]]]], [0]), "it is damaged: "),
        (as_json([["builtins.list"], ["builtins.tuple"]], [[0, [[-9, 1]]]], [0]), "it is damaged: "),
        (
            as_json([["builtins.list"]], [[0, {"width": 2**28, "flat": [1]}]], [0]),
            "it is damaged: 268435456 f",
        ),
        (
            as_json([["builtins.list"], ["builtins.bytearray"]], [[0, [[-2, 2**31]]]], [0]),
            "it is damaged: a b",
        ),
        (encoded(list(ENDS)), "it holds no Growth"),
    ],
)
def test_what_is_nothing_that_was_kept_is_refused(foreign: bytes, why: str) -> None:
    with pytest.raises(StateError, match=f"^{why}"):
        decoded(foreign, Growth)
