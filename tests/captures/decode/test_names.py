from __future__ import annotations

import pytest
from hypothesis import given

from mqproto.captures.decode import Names, names as module
from mqproto.captures.decode.names import (
    admin_format_name,
    destination_format_name,
    printable,
    response_format_name,
)
from mqproto.captures.net.tcp import Endpoint
from mqproto.testing import user_headers
from mqproto.wire import UserHeader
from tests.captures.decode.scene import guid
from tests.examples import a_full_message, a_user_message

KNOWN = Names(
    managers={guid("c"): "gamma"},
    addresses={("10.0.0.3", 1_801): "gamma"},
    hosts={"10.0.0.4": "delta"},
    queues={(guid("c"), 16): "gamma\\orders", guid("q"): "gamma\\public"},
)


def header(destination: int | str | bytes, manager: str = "c") -> UserHeader:
    return a_user_message(destination=destination, destination_manager=guid(manager)).user


def test_queue_managers_go_by_address_by_host_or_by_what_is_there() -> None:
    endpoints = [Endpoint("10.0.0.3", 1_801), Endpoint("10.0.0.4", 5), Endpoint("10.0.0.3", 5)]
    assert [KNOWN.endpoint(each) for each in endpoints] == ["gamma", "delta", "10.0.0.3:5"]
    assert [KNOWN.manager(guid(each)) for each in "cd"] == ["gamma", "2E2E2E64"]


@pytest.mark.parametrize(
    ("destination", "manager", "short", "long"),
    [
        (16, "c", "gamma\\orders", "PRIVATE=2E2E2E63-2E2E-2E2E-2E2E-2E2E2E2E2E2E\\00000010"),
        (17, "c", "gamma\\17", "PRIVATE=2E2E2E63-2E2E-2E2E-2E2E-2E2E2E2E2E2E\\00000011"),
        (17, "d", "2E2E2E64\\17", "PRIVATE=2E2E2E64-2E2E-2E2E-2E2E-2E2E2E2E2E2E\\00000011"),
        (guid("q"), "c", "gamma\\public", "PUBLIC=2E2E2E71-2E2E-2E2E-2E2E-2E2E2E2E2E2E"),
        (guid("r"), "c", "public 2E2E2E72", "PUBLIC=2E2E2E72-2E2E-2E2E-2E2E-2E2E2E2E2E2E"),
        ("OS:x\\orders", "c", "OS:x\\orders", "DIRECT=OS:x\\orders"),
        ("no name\x1b", "c", "no name\\x1b", "no name\\x1b"),
    ],
)
def test_a_destination_has_a_short_name_and_a_format_name(
    destination: int | str | bytes, manager: str, short: str, long: str
) -> None:
    user = header(destination, manager)
    assert (KNOWN.destination(user), destination_format_name(user)) == (short, long)


@given(user_headers())
def test_whatever_a_header_holds_its_queues_have_printable_names_or_none(user: UserHeader) -> None:
    assert printable(KNOWN.destination(user)).isprintable()
    for name in (destination_format_name(user), admin_format_name(user), response_format_name(user)):
        assert name is None or name.isprintable()


def test_a_message_without_other_queues_has_no_names_for_them() -> None:
    user = header(16)
    assert (admin_format_name(user), response_format_name(user)) == (None, None)
    user = a_full_message().user
    user.response_type = 1  # the same as the administration queue
    assert response_format_name(user) == admin_format_name(user)


def test_names_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_LIMIT", 10)
    names = Names()
    for number in range(100):
        assert names.destination(header(number)) == f"2E2E2E63\\{number}"
    assert len(names._destinations) <= 10


@pytest.mark.parametrize(
    ("text", "shown"), [("größe", "größe"), ("\x1b[2J", "\\x1b[2J"), ("\ud800", "\\ud800"), ("a\nb", "a\\nb")]
)
def test_what_could_harm_a_screen_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
