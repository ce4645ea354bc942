"""A person at a trigger's screen hears about the first failure, and is not flooded."""

from __future__ import annotations

import os
import sys

import pytest
import trio.testing

from mqproto.simulator.edges.firstfailures import QUIET_S, FirstFailures, on_screen

ORDERS = r"desk\orders"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def failures(said: list[str]) -> FirstFailures:
    return FirstFailures(ORDERS, said.append)


async def test_the_first_failure_says_what_failed_and_when_it_is_tried_again(
    failures: FirstFailures, said: list[str]
) -> None:
    failures.retried("GUID\\7", "HTTP 503", 1.5)
    [line] = said
    assert line.startswith(r"desk\orders: GUID\7 failed (HTTP 503) and is tried again in 1.5 s; ")


async def test_the_next_one_is_said_after_a_message_was_processed(
    failures: FirstFailures, said: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    failures.retried("a", "HTTP 503", 1)
    await trio.sleep(QUIET_S)
    failures.retried("a", "HTTP 503", 2)
    failures.processed()
    failures.retried("b", "HTTP 500", 1)
    assert [line.split(";")[0] for line in said] == [
        r"desk\orders: a failed (HTTP 503) and is tried again in 1 s",
        r"desk\orders: b failed (HTTP 500) and is tried again in 1 s",
    ]


async def test_failures_and_successes_that_take_turns_are_no_flood(
    failures: FirstFailures, said: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    for number in range(100):
        failures.retried(str(number), "HTTP 503", 0.1)
        failures.processed()
        await trio.sleep(QUIET_S / 40)
    assert [line.split()[1] for line in said] == ["0", "40", "80"]


@pytest.mark.parametrize(
    ("copy_in", "whose"),
    [
        (r"desk\errors", r"desk\errors has a copy"),
        ("", "its sender has a dead letter, if it asked for one"),
    ],
)
async def test_what_is_given_up_is_said_beside_what_is_tried_again(
    failures: FirstFailures, said: list[str], copy_in: str, whose: str
) -> None:
    failures.retried("a", "HTTP 503", 1)
    failures.given_up("b", "unknown-account: 17", copy_in)
    failures.given_up("c", "unknown-account: 18", copy_in)
    assert len(said) == 2
    assert said[1].startswith(rf"desk\orders: b is given up (unknown-account: 17): {whose}; ")


def test_a_screen_that_cannot_be_written_to_ends_nobody(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_screen("one\ntwo")
    assert capsys.readouterr().err == "mqproto: one two\n"
    reading, writing = os.pipe()
    os.close(reading)
    # Without a buffer, which would be written once more when it is closed.
    with os.fdopen(writing, "wb", buffering=0) as gone:
        monkeypatch.setattr(sys, "stderr", Closed(gone.fileno()))
        on_screen("three")


class Closed:
    """A stream whose reader has gone."""

    def __init__(self, file: int) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return os.write(self._file, text.encode())

    def flush(self) -> None: ...
