"""A token that holds keys is away for a while: nothing that was accepted is lost, and nothing is accepted half."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.security import HeldKeyPair, KeyGuard, ProtectionError
from mqproto.turn.guard import NO_KEYS, Signer
from mqproto.wire import MessageClass
from tests.observing import bodies, kept, messages
from tests.pair import Net, at
from tests.security.keys import SoftToken, held, own_key
from tests.security.test_guard import SECRET, guarded, keys_of, private, sent_by_a, signer


def with_tokens() -> tuple[Net, SoftToken, SoftToken]:
    """`a` signs with a token, and `c` opens with one: what a message needs, and its answer does not."""
    net = guarded(settings=Settings(try_connect_interval_ms=500))
    signs, signing = held(signer("alice")[0])
    alice = {"alice": (Signer(signer("alice")[1].der), signs)}
    opens, exchange = held(own_key(512))
    for name, changes in (("a", {"signers": alice}), ("c", {"own": {"aes": (opens,)}})):
        guard = net.nodes[name].guard
        assert isinstance(guard, KeyGuard)
        guard.renew(replace(keys_of(name), **changes))
    return net, signing, exchange


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("transactional", [False, True])
def test_what_needs_a_key_that_is_away_waits_at_its_sender_and_arrives_once(transactional: bool) -> None:
    """What has an order waits behind it; else the sender finds out which one it is, and goes on with the others."""
    net, _, exchange = with_tokens()
    there, name = (at("c"), "orders") if transactional else (at("c", 17), "notes")
    wish: dict[str, Any] = {"transactional": transactional, "recoverable": True}
    exchange.is_away = True
    for body in ("plain", SECRET, "behind"):
        net.send("a", there, body, **wish, **(private() if body == SECRET else {}))
    net.pass_ms(4_000)  # One at a time is sent in the end, and each is acknowledged after a while.
    assert bodies(net, "c", name) == [b"plain"] + [b"behind"] * (not transactional)
    closed = [note.facts["reason"] for note in net.nodes["c"].notes if note.name == "session-closed"]
    assert "the token is away: put it back" in closed
    asked = exchange.calls
    assert asked > 1
    exchange.is_away = False
    net.pass_ms(3_000)
    assert sorted(bodies(net, "c", name)) == sorted([b"plain", SECRET, b"behind"])
    assert exchange.calls == asked + 1, "what has been opened once is not asked for again"
    assert "message-refused" not in net.nodes["c"].note_names()


def test_while_others_pass_what_needs_the_key_becomes_a_dead_letter_where_it_waits_at_last() -> None:
    net, _, exchange = with_tokens()
    exchange.is_away = True
    net.send("a", at("c", 17), SECRET, recoverable=True, **private())
    for number in range(40):
        net.send("a", at("c", 17), bytes(4_000 + number), recoverable=True)
        net.pass_ms(1_000)
    assert len(bodies(net, "c", "notes")) == 40
    assert "message-set-aside" in net.nodes["b"].note_names()
    [letter] = kept(net, "b", "system$;deadletter")
    assert letter.security is not None
    assert letter.security.body_encrypted, "nobody on the way can read it"


def test_a_session_key_that_is_known_needs_no_token() -> None:
    net, _, exchange = with_tokens()
    net.send("a", at("c", 17), SECRET, **private())
    net.run()
    guard, (opens, other) = net.nodes["c"].guard, held(own_key(512))
    assert isinstance(guard, KeyGuard)
    guard.renew(replace(keys_of("c"), own={"aes": (opens,)}))
    other.is_away = True
    net.send("a", at("c", 17), SECRET, **private())
    net.run()
    assert (bodies(net, "c", "notes"), exchange.calls, other.calls) == ([SECRET] * 2, 1, 0)


def test_what_no_key_opens_is_refused_as_it_is_with_a_key_in_a_file() -> None:
    net, _, _ = with_tokens()
    c = net.nodes["c"].guard
    assert isinstance(c, KeyGuard)
    message = sent_by_a(**private("AES-128"))
    assert message.security is not None
    for key, level, why in (
        (message.security.encryption_key[:-1], 5, "EncryptionKey"),
        (message.security.encryption_key, 3, "RC2|none of the enhanced"),
    ):
        wrong = replace(
            message,
            security=replace(message.security, encryption_key=key),
            properties=replace(message.properties, privacy_level=level),
        )
        assert wrong.security is not None
        wrong.security.body_encrypted = True
        c.reach(wrong)
        with pytest.raises(ProtectionError, match=why):
            c.opened(wrong, (), net.now)


def test_a_token_that_goes_at_the_last_moment_has_the_message_refused_by_name() -> None:
    net, _, exchange = with_tokens()
    c = net.nodes["c"].guard
    assert isinstance(c, KeyGuard)
    exchange.is_away = True
    with pytest.raises(ProtectionError, match="the token is away: put it back") as refusal:
        c.opened(sent_by_a(**private()), (), net.now)
    assert refusal.value.message_class is MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER
    NO_KEYS.reach(sent_by_a(**private()))


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
@pytest.mark.parametrize("transactional", [False, True])
def test_what_is_to_be_signed_while_the_token_is_away_changes_nothing(transactional: bool) -> None:
    net, signing, _ = with_tokens()
    there, name = (at("c"), "orders") if transactional else (at("c", 17), "notes")
    signing.is_away = True
    drafts = [
        (there, Draft(body=b"plain", transactional=transactional)),
        (there, Draft(body=SECRET, transactional=transactional, signer="alice")),
    ]
    core = net.nodes["a"].up
    before = core.inspect().sending.stored_bytes
    with pytest.raises(UsageError, match="the token is away: put it back"):
        core.enqueue(drafts, net.now)
    assert core.inspect().sending.stored_bytes == before
    net.run()
    assert bodies(net, "c", name) == []
    signing.is_away = False
    core.enqueue(drafts, net.now)
    net.run()
    assert bodies(net, "c", name) == [b"plain", SECRET]
    [plain, signed] = kept(net, "c", name)
    assert [bool(each.security and each.security.authenticated) for each in (plain, signed)] == [False, True]
    assert signing.calls == 2, "one in vain, and one for each message"
    assert len(messages(net, "a", "b")) == 2
    assert isinstance(held(own_key(512))[0], HeldKeyPair)
