"""A message's properties as headers: one edge accepts what the other writes, and refuses an invalid header by naming
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.simulator.client import connect
from mqproto.simulator.client.client import DraftOptions
from mqproto.simulator.edges.headers import (
    EXTENSION_ROOM_BYTES,
    HEADERS,
    MessageOptions,
    headers_of,
    options_in,
)
from mqproto.simulator.edges.trigger.judgment import call_for
from mqproto.simulator.security.keyfiles import SIGNING
from mqproto.simulator.topology import load
from mqproto.turn.guard import CIPHERS
from tests.captures.wireshark.dissecting import drawn
from tests.simulator.gateways import gateway
from tests.simulator.running import running

NUMBERS = st.integers(0, 0xFFFFFFFF)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


@st.composite
def said(draw: st.DrawFn, *, with_keys: bool = True) -> MessageOptions:
    """Draw the properties of a message; without an administration queue no acknowledgments are requested.

    with_keys: whether some messages are to be encrypted and signed.
    """
    admin_queue = draw(TEXTS)
    level, algorithm = draw(st.sampled_from([(0, 0), (5, 0), *CIPHERS.values()])) if with_keys else (0, 0)
    return MessageOptions(
        label=draw(TEXTS),
        priority=draw(st.integers(0, 7)),
        correlation_id=draw(st.binary(min_size=20, max_size=20)),
        body_type=draw(NUMBERS),
        application_tag=draw(NUMBERS),
        extension=draw(st.binary(max_size=100)),
        response_queue=draw(TEXTS),
        admin_queue=admin_queue,
        acknowledgments=draw(st.integers(0, 15)) if admin_queue else 0,
        sender_id=draw(st.sampled_from(["", "S-1-5-18", "S-1-5-21-1004336348-1177238915-682003330-512"])),
        privacy_level=level,
        encryption_algorithm=algorithm,
        signer=draw(st.sampled_from(["", SIGNING, "alice"])) if with_keys else "",
    )


@given(said())
def test_what_the_trigger_gives_the_gateway_takes(options: MessageOptions) -> None:
    headers = headers_of(options)
    assert headers.keys() <= HEADERS.keys()
    assert all(text.isascii() and text.isprintable() and text for text in headers.values())
    found = options_in(lambda name: headers.get(name, ""))
    assert int(headers.get("MQ-Body-Type", "0")) == options["body_type"]
    left_out = {"correlation_id": bytes(20), "extension": b"", "body_type": options["body_type"]}
    assert {**left_out, **found} == {
        **options,
        "time_to_reach_queue_s": 0xFFFFFFFF,
        "time_to_be_received_s": 0xFFFFFFFF,
    }


def test_what_is_not_said_has_no_header() -> None:
    assert headers_of(MessageOptions()) == {}
    assert headers_of(cast(MessageOptions, DraftOptions(priority=3, correlation_id=bytes(20)))) == {}


def test_an_extension_that_servers_would_refuse_in_a_header_is_named_by_its_size() -> None:
    fits = MessageOptions(extension=bytes(EXTENSION_ROOM_BYTES))
    assert list(headers_of(fits)) == ["MQ-Extension"]
    over = MessageOptions(extension=bytes(EXTENSION_ROOM_BYTES + 1))
    assert headers_of(over) == {"MQ-Extension-Bytes": "4097"}


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"MQ-Label": "%FF"}, "MQ-Label must be UTF-8"),
        ({"MQ-Response-Queue": "\xe4"}, "MQ-Response-Queue must be UTF-8"),
        ({"MQ-Admin-Queue": "%C3"}, "MQ-Admin-Queue must be UTF-8"),
        ({"MQ-Application-Tag": "4294967296"}, "MQ-Application-Tag is '4294967296': must be a whole number"),
        ({"MQ-Application-Tag": "-1"}, "must be a whole number, 0 to 4294967295"),
        ({"MQ-Extension": "a"}, "MQ-Extension is 'a': must be base64"),
        ({"MQ-Extension": "\xe4aaa"}, "must be base64"),
        ({"MQ-Correlation-Id": "0a"}, "must be 40 hexadecimal digits"),
        ({"MQ-Acknowledge": "arrival"}, "say where they are to go with MQ-Admin-Queue"),
        ({"MQ-Acknowledge": "arival", "MQ-Admin-Queue": "q"}, "did you mean 'arrival'"),
        ({"MQ-Encrypt": "aes"}, "MQ-Encrypt: "),
        ({"MQ-Sign": "a b"}, "MQ-Sign is 'a b': must be yes, or the name of a user"),
        ({"MQ-Acknowledge": "none, arrival", "MQ-Admin-Queue": "q"}, "MQ-Acknowledge"),
    ],
)
def test_a_header_that_cannot_be_is_refused_by_name(headers: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        options_in(lambda name: headers.get(name, ""))


@pytest.mark.parametrize(("asked", "flags"), [("", 0xF), ("none", 0), ("receipt, no-receipt", 0xA)])
def test_an_administration_queue_hears_of_everything_unless_something_is_said(asked: str, flags: int) -> None:
    headers = {"MQ-Admin-Queue": "q", "MQ-Acknowledge": asked}
    assert options_in(lambda name: headers.get(name, "")).get("acknowledgments") == flags


QUEUES = st.sampled_from(
    [
        "",
        r"destination\notes",
        r"DIRECT=TCP:127.0.0.9\PRIVATE$\q",
        r"PRIVATE=0000000D-0000-0000-0000-00000000000A\00000011",
    ]
)


async def test_what_comes_by_http_goes_by_http_as_it_came(tmp_path: Path) -> None:
    """The message goes through a gateway, a queue manager and a trigger: every header and the body stay the same."""
    topology = load("three-node").with_free_ports()
    handed = [
        (
            options | {"response_queue": response, "admin_queue": admin, "acknowledgments": bool(admin) * 5},
            body,
        )
        for options, response, admin, body in drawn(
            st.tuples(said(with_keys=False), QUEUES, QUEUES, st.binary(max_size=50)), 40
        )
    ]
    sent = {}
    named = {r"destination\notes": str(topology.resolve(r"destination\notes").format_name)}
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path) as client,
        gateway(topology, tmp_path) as producer,
    ):
        for options, body in handed:
            headers = headers_of(options)
            answer = await producer.post("/queues/notes/messages", content=body, headers=headers)
            assert answer.status_code == 200, (options, answer.text)
            sent[answer.json()["id"]] = options, body
        # Acknowledgments are among them.
        found = await client.receive("notes", 500)
        for message in (each for each in found if each.message_class == "NORMAL"):
            options, body = sent.pop(str(message.id))
            call = call_for(message)
            for which in ("response_queue", "admin_queue"):
                options[which] = named.get(str(options[which]), options[which])
            assert call.body == body
            headers = call.headers()
            assert {name: headers[name] for name in headers.keys() & HEADERS.keys()} == headers_of(options)
        assert not sent
