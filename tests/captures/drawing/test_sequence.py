from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.captures.drawing.sequence import (
    NARROW,
    SETTLED_SHOWN,
    WIDTH,
    SequenceProgress,
    parts,
    spoken,
    strip,
)


@st.composite
def numbers(draw: st.DrawFn) -> SequenceProgress:
    last = draw(st.integers(0, 10_000_000))
    sent = draw(st.integers(0, last))
    confirmed = draw(st.integers(0, sent))
    accepted = draw(st.none() | st.integers(confirmed, last))
    missing, held = None, 0
    if accepted is not None and accepted < last - 1 and draw(st.booleans()):
        missing = (accepted + 1, draw(st.integers(accepted + 1, last - 1)))
        held = draw(st.integers(1, last - missing[1]))
    return SequenceProgress(
        confirmed=confirmed, accepted=accepted, missing=missing, held=held, sent=sent, last=last
    )


def test_a_gap_is_seen_and_told() -> None:
    found = SequenceProgress(confirmed=40, accepted=52, missing=(53, 54), held=6, sent=64, last=70)
    assert [tuple(part) for part in parts(found)] == [
        ("confirmed", 33, 40),
        ("accepted", 41, 52),
        ("missing", 53, 54),
        ("held", 55, 60),
        ("sent", 61, 64),
        ("unsent", 65, 70),
    ]
    assert spoken(found).endswith("missing 53 to 54, held 55 to 60, sent 61 to 64, unsent 65 to 70")


@given(numbers())
def test_each_number_from_those_on_that_are_confirmed_is_in_one_part(found: SequenceProgress) -> None:
    shown = list(parts(found))
    first = max(1, found.confirmed - SETTLED_SHOWN + 1)
    for part in shown:
        assert part.first == first <= part.last
        first = part.last + 1
    assert first == found.last + 1


@given(numbers(), st.sampled_from([WIDTH, NARROW]))
def test_the_strip_is_within_its_picture(found: SequenceProgress, wide: int) -> None:
    for shape in strip(found, wide).inner:
        assert not isinstance(shape, str)
        x, width = float(shape.attributes.get("x", 0)), float(shape.attributes.get("width", 0))
        assert x >= 0
        assert x + width <= wide + 1e-6
