from __future__ import annotations

import pytest

from mqproto.simulator.base.randomness import chance


def test_the_dice_of_a_subject_fall_the_same_again_on_every_machine() -> None:
    assert chance(7, "kill", "sender").random() == chance(7, "kill", "sender").random()
    # Text seeds are hashed with SHA-512, whatever PYTHONHASHSEED says.
    assert chance(7, "kill", "sender").randrange(10**9) == 257_520_530


@pytest.mark.parametrize("other", [(8, "a", "b"), (7, "b", "a"), (7, "a"), (7,)])
def test_every_subject_has_its_own(other: tuple[int, *tuple[str, ...]]) -> None:
    assert chance(*other).random() != chance(7, "a", "b").random()
