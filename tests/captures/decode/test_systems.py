"""Captures of two systems are recognized as such, and captures of one system are not mistaken for that."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mqproto.captures import spoil
from mqproto.captures.decode.systems import Systems, contents_of
from mqproto.captures.files.frame import Frame
from mqproto.captures.packets import PacketReader
from mqproto.wire import UserMessage
from tests.captures.pipeline.samples import FRAMES, in_one_laboratory
from tests.captures.truth.kinds import apart

NAMES = [name for name in FRAMES if name != "pings"]


def clash(one: Iterable[Frame], other: Iterable[Frame]) -> bool:
    """Return whether two captures cannot be from the same system."""
    systems = Systems()
    systems.add("one", contents_of(PacketReader(one)))
    return systems.clash(contents_of(PacketReader(other))) is not None


@pytest.mark.parametrize("name", NAMES)
def test_runs_of_one_laboratory_are_told_apart(name: str) -> None:
    of_one = {"window", "loss-and-reordering"}
    for other in NAMES:
        clashes = clash(in_one_laboratory(name), in_one_laboratory(other))
        assert clashes == (other != name and {name, other} != of_one)
        assert not clash(FRAMES[name], FRAMES[other])


@pytest.mark.parametrize("name", NAMES)
def test_two_places_and_two_times_of_one_system_are_one(name: str) -> None:
    frames = FRAMES[name]
    one, other = apart(list(spoil.at_hosts(frames)))[:2]
    assert not clash(one, other)
    assert not clash(frames[: len(frames) // 2], frames[len(frames) // 2 :])
    assert not clash(frames, spoil.lost(frames, 10))
    for size_bytes in (96, 300):
        assert not clash(frames, spoil.shortened(frames, size_bytes))


def test_what_an_intermediate_passed_on_says_nothing_of_its_source() -> None:
    passed_on = [
        seen
        for seen in PacketReader(FRAMES["three-hop"])
        if isinstance(seen.packet, UserMessage) and seen.packet.user.hop_count
    ]
    assert passed_on
    assert contents_of(passed_on) == {}
