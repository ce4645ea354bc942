"""Three queue managers with keys, in a row.

A protected message from one end is decrypted and authenticated only at the other end.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import QuotaExceeded, UsageError
from mqproto.messages.drafts import REPORT_NO_ARRIVAL, REPORT_NO_RECEIPT, Draft, copies
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.queues.protection import Protection, fingerprint
from mqproto.security import (
    PROVIDERS,
    Certificate,
    KeyGuard,
    KeyPair,
    Keys,
    SessionKey,
    decrypt,
    new_key_pair,
    self_signed,
)
from mqproto.session import ConnectionStatus
from mqproto.turn.guard import CIPHERS, NO_KEYS, ProtectionError, Signer
from mqproto.wire import MessageClass, UserMessage, decode_message, encode_packet, sid_from_text
from mqproto.wire.layouts.keyblobs import AES_256
from tests.observing import (
    DEADLETTER,
    DEADXACT,
    administration,
    arrive,
    bodies,
    ended,
    final_acks,
    kept,
    messages,
    packets,
)
from tests.pair import START, Net, at, chain, direct, guid_of, queue
from tests.security.keys import FakeKey, own_key

BASE, ENHANCED, AES = PROVIDERS
SECRET: Final = b"a body that nobody on the way is to read"
NOTES, ORDERS, ADMIN = (
    queue("notes", 17, transactional=False),
    queue("orders"),
    queue("admin", 5, transactional=False),
)
ALICE: Final = "S-1-5-21-1-2-3-1000"
OWN: Final = {provider.word: (own_key(512),) for provider in PROVIDERS}
OTHERS: Final = {provider.word: own_key(512).public for provider in PROVIDERS}


@cache
def signer(name: str) -> tuple[KeyPair, Certificate]:
    """Return a key pair and a certificate for a signer; each signer has a key of its own."""
    key = own_key(1_024 if name == "alice" else 1_032)
    return key, self_signed(key, name, START.utc_s - 60, 30)


def keys_of(name: str, *, reader: dict[str, Any] | None = None) -> Keys:
    """Return the keys of a node: `a` can encrypt for `c`, and signs as Alice; `c` can decrypt, and knows Alice."""
    if name == "c":
        return Keys(own=OWN, users={sid_from_text(ALICE): [signer("alice")[1].der]})
    known = {guid_of("c"): OTHERS if reader is None else reader}
    signers = {each: (Signer(signer(each)[1].der), signer(each)[0]) for each in ("alice", "mallory")}
    return Keys(managers=known, signers=signers)


def guarded(
    *declared: QueueDeclaration, settings: Settings | None = None, reader: dict[str, Any] | None = None
) -> Net:
    net = chain("a", "b", "c", queues=declared or (ORDERS, NOTES), settings=settings)
    net.nodes["a"].queues = (ADMIN,)
    for name in "ac":
        node = net.nodes[name]
        node.guard = KeyGuard(keys_of(name, reader=reader), node.settings)
    net.start()
    return net


def asking(**protection: Any) -> Net:
    """Return a net in which `c` has queues that require protection."""
    asked = Protection(**protection)
    return guarded(replace(ORDERS, protection=asked), replace(NOTES, protection=asked))


def private(cipher: str = "AES-256") -> dict[str, int]:
    """Return the properties of a draft that is to be encrypted with this cipher."""
    level, algorithm = CIPHERS[cipher]
    return {"privacy_level": level, "encryption_algorithm": algorithm}


def by(name: str) -> dict[str, str]:
    """Return the properties of a draft that this signer signs."""
    return {"signer": name}


def crossed(net: Net) -> bytes:
    """Return every byte that was on a wire."""
    return b"".join(chunk for _, _, chunk in net.traffic)


def refusal(net: Net, at: str = "c") -> tuple[object, object]:
    """Return the class of the only refusal, and the text that explains it."""
    [note] = [note for note in net.nodes[at].notes if note.name == "message-refused"]
    return note.facts["reason"], note.facts.get("why")


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_body_is_read_at_its_destination_and_nowhere_on_its_way(
    transactional: bool, recoverable: bool
) -> None:
    net = guarded()
    there, name = (at("c"), "orders") if transactional else (at("c", 17), "notes")
    net.send("a", there, SECRET, transactional=transactional, recoverable=recoverable, privacy_level=5)
    net.pass_ms(2_000)
    assert bodies(net, "c", name) == [SECRET]
    assert SECRET not in crossed(net)
    first, second = messages(net, "a", "b")[0], messages(net, "b", "c")[0]
    assert first.security is not None
    assert first.security.body_encrypted
    assert first.security.encryption_key
    assert (first.security.encryption_key, first.properties) == (
        second.security and second.security.encryption_key,
        second.properties,
    )
    [there_now] = kept(net, "c", name)
    assert there_now.security is not None
    assert not there_now.security.body_encrypted
    assert there_now.properties.privacy_level == AES.privacy_level


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_cipher_that_is_named_is_taken_and_a_weak_one_is_noted_at_both_ends(cipher: str) -> None:
    net = asking(weak_ciphers=("RC2-128", "RC4-128", "RC2-40", "RC4-40"))
    net.send("a", at("c", 17), SECRET, **private(cipher))
    net.run()
    assert bodies(net, "c", "notes") == [SECRET]
    [sent] = messages(net, "a", "b")
    assert (sent.properties.privacy_level, sent.properties.encryption_algorithm) == CIPHERS[cipher]
    weak = not cipher.startswith("AES")
    assert ("weak-cipher-sent" in net.nodes["a"].note_names()) == weak
    assert ("weak-cipher-received" in net.nodes["c"].note_names()) == weak


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
@pytest.mark.parametrize(
    ("has", "level", "provider", "algorithm"),
    [
        ("base enhanced aes", 1, AES, 0x6610),
        ("base enhanced aes", 5, AES, 0x6610),
        ("base enhanced", 1, ENHANCED, 0x6801),
        ("base enhanced", 3, ENHANCED, 0x6801),
        ("base", 1, BASE, 0x6801),
    ],
)
def test_of_the_receiver_s_keys_the_strongest_is_taken(
    has: str, level: int, provider: Any, algorithm: int
) -> None:
    net = guarded(reader={word: OTHERS[word] for word in has.split()})
    net.send("a", at("c", 17), SECRET, privacy_level=level)
    net.run()
    [sent] = messages(net, "a", "b")
    assert (sent.properties.privacy_level, sent.properties.encryption_algorithm) == (
        provider.privacy_level,
        algorithm,
    )


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
@pytest.mark.parametrize(("has", "level"), [("base enhanced", 5), ("base", 3), ("", 1)])
def test_where_the_receiver_has_no_key_that_is_strong_enough_nothing_is_accepted(
    has: str, level: int
) -> None:
    net = guarded(reader={word: OTHERS[word] for word in has.split()})
    with pytest.raises(UsageError, match=r"no public key|or name a cipher for those keys"):
        net.send("a", at("c", 17), SECRET, privacy_level=level)
    assert net.nodes["a"].up.status().outgoing == []


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
def test_a_direct_name_and_a_node_without_keys_are_refused_when_it_is_sent() -> None:
    net = guarded()
    for wish in ({"privacy_level": 5}, by("alice")):
        with pytest.raises(UsageError, match="by a direct format name is neither signed nor encrypted"):
            net.send("a", direct("c", "notes"), SECRET, **wish)
        with pytest.raises(UsageError, match=r"pip install 'mqproto\[security\]'"):
            net.send("b", at("c", 17), SECRET, **wish)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
def test_what_waits_is_on_disk_in_clear_and_leaves_encrypted_after_a_restart() -> None:
    net = guarded()
    net.kill("b")
    net.send("a", at("c"), SECRET, transactional=True, privacy_level=5)
    net.send("a", at("c", 17), SECRET, recoverable=True, privacy_level=5)
    net.run()
    net.kill("a")
    net.start("a", "b")
    net.pass_ms(10_000)
    assert bodies(net, "c", "orders") == bodies(net, "c", "notes") == [SECRET]
    assert SECRET not in crossed(net)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_what_was_held_behind_a_gap_is_opened_when_the_gap_is_closed() -> None:
    net = guarded()
    for number in range(3):
        net.send("a", at("c"), b"%d" % number, transactional=True, privacy_level=5 if number else 0)
    net.pass_ms(2_000)
    first, *others = messages(net, "b", "c")[:3]
    net = guarded()
    for message in (others[1], others[0], first):
        arrive(net, "c", message, peer="b")
    net.kill("c")
    net.start("c")
    net.run()
    assert bodies(net, "c", "orders") == [b"0", b"1", b"2"]
    assert net.receive("c", "orders") == [b"0", b"1", b"2"]


@pytest.mark.spec("[MS-MQQB] 3.1.2.11")
@pytest.mark.spec("[MS-MQQB] 3.1.6")
@pytest.mark.spec("[MS-MQQB] 3.1.6.11")
@pytest.mark.spec("[MS-MQQB] 3.1.6.10")
def test_a_session_key_serves_many_messages_and_is_renewed_when_its_time_is_over() -> None:
    net = guarded(settings=Settings(symmetric_key_short_lifetime_ms=60_000))

    def key() -> bytes:
        net.send("a", at("c", 17), SECRET, privacy_level=5)
        net.run()
        security = messages(net, "a", "b")[-1].security
        assert security is not None
        return security.encryption_key

    keys = [key()]
    for pause_ms in (1_000, 58_000, 62_000, 1_000):
        net.pass_ms(pause_ms)
        keys.append(key())
    assert [one == keys[0] for one in keys] == [True, True, True, False, False]
    assert keys[3] == keys[4]
    assert bodies(net, "c", "notes") == [SECRET] * 5


@pytest.mark.spec("[MS-MQQB] 3.1.2.12")
@pytest.mark.spec("[MS-MQQB] 3.1.6.12")
def test_the_base_provider_s_keys_have_a_cache_and_a_timer_of_their_own() -> None:
    net = guarded(settings=Settings(symmetric_key_short_lifetime_ms=60_000, send_symmetric_key_cache_size=1))

    def key(cipher: str) -> bytes:
        net.send("a", at("c", 17), SECRET, **private(cipher))
        net.run()
        security = messages(net, "a", "b")[-1].security
        assert security is not None
        return security.encryption_key

    first = [key("RC4-40"), key("AES-256")]
    assert [key("RC4-40"), key("AES-256")] == first, "neither took the other's place"
    net.pass_ms(121_000)
    assert key("RC4-40") != first[0]


def test_the_receiver_has_new_keys_and_what_waits_is_encrypted_with_them() -> None:
    net = guarded()
    net.send("a", at("c", 17), b"before", privacy_level=5)
    net.run()
    net.kill("b")
    net.send("a", at("c", 17), SECRET, privacy_level=5)
    newer = own_key(1_024)
    for_c, for_a = net.nodes["c"].guard, net.nodes["a"].guard
    assert isinstance(for_a, KeyGuard)
    assert isinstance(for_c, KeyGuard)
    for_c.renew(Keys(own={"aes": (newer, own_key(512))}))
    for_a.renew(Keys(managers={guid_of("c"): {"aes": newer.public}}))
    net.start("b")
    net.pass_ms(10_000)
    assert bodies(net, "c", "notes") == [b"before", SECRET]
    assert [len(m.security.encryption_key) for m in messages(net, "a", "b") if m.security] == [76, 140]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5.1")
@pytest.mark.parametrize("journal_negative", [False, True])
@pytest.mark.parametrize("transactional", [False, True])
def test_what_cannot_be_encrypted_any_more_is_not_sent_and_is_a_dead_letter_if_it_asks_for_that(
    transactional: bool, journal_negative: bool
) -> None:
    net = guarded()
    net.kill("b")
    there = at("c") if transactional else at("c", 17)
    wish = {"transactional": transactional, "journal_negative": journal_negative, "recoverable": True}
    net.send("a", there, b"before", **wish)
    net.send("a", there, SECRET, privacy_level=5, **wish)
    net.send("a", there, b"behind", **wish)
    net.run()
    net.nodes["a"].guard = NO_KEYS
    net.kill("a")
    net.start("a", "b")
    net.pass_ms(10_000)
    assert bodies(net, "c", "orders" if transactional else "notes") == [b"before", b"behind"]
    assert SECRET not in crossed(net)
    letters = ended(net, "a", DEADXACT if transactional else DEADLETTER)
    assert letters == [(MessageClass.NACK_BAD_ENCRYPTION, SECRET)] * journal_negative
    assert "message-not-encrypted" in net.nodes["a"].note_names()
    attempts = [attempt for way in net.nodes["a"].up.status().outgoing for attempt in way.history]
    assert ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE in [attempt.status for attempt in attempts]

    if journal_negative:
        net.nodes["a"].guard = KeyGuard(keys_of("a"), Settings())
        net.kill("a")
        net.start("a")
        net.run()
        letter_queue = DEADXACT if transactional else DEADLETTER
        assert net.nodes["a"].up.send_back(letter_queue, None, net.now) == 1
        net.pass_ms(10_000)
        assert SECRET in bodies(net, "c", "orders" if transactional else "notes")
        assert SECRET not in crossed(net), "it was encrypted, as it was to be"


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("insecure", [False, True])
def test_a_weak_cipher_that_the_queue_does_not_name_is_refused_by_a_class_of_its_own(insecure: bool) -> None:
    net = guarded(settings=Settings(send_insecure_nacks=insecure))
    wish = {"admin_queue": at("a", 5).name, "acknowledgments": REPORT_NO_ARRIVAL}
    net.send("a", at("c", 17), SECRET, **private("RC4-128"), **wish)
    net.send("a", at("c"), SECRET, transactional=True, **private("RC4-128"))
    net.pass_ms(2_000)
    assert bodies(net, "c", "notes") == bodies(net, "c", "orders") == []
    assert administration(net, "a") == [MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER] * insecure
    assert final_acks(net, "c", "b") == [MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER]


# Signatures


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("wish", [{}, {"privacy_level": 5}], ids=["in clear", "encrypted"])
def test_a_signed_message_is_verified_and_its_queue_says_so(
    transactional: bool, wish: dict[str, int]
) -> None:
    net = guarded()
    there, name = (at("c"), "orders") if transactional else (at("c", 17), "notes")
    net.send("a", there, SECRET, transactional=transactional, sender_id=ALICE, **by("alice"), **wish)
    net.send("a", there, b"unsigned", transactional=transactional, sender_id=ALICE, **wish)
    net.pass_ms(2_000)
    signed, unsigned = kept(net, "c", name)
    assert signed.security is not None
    assert unsigned.security is not None
    assert (signed.security.authenticated, signed.security.signature_type) == (True, 3)
    assert (unsigned.security.authenticated, unsigned.security.signature_type) == (False, 0)
    on_the_wire = [message.security for message in messages(net, "a", "b")]
    assert [bool(one and one.authenticated) for one in on_the_wire] == [False, False], (
        "that is not ours to say"
    )


def sent_by_a(**wish: Any) -> UserMessage:
    """Return the message that `a` would send to the queue `notes` of `c`."""
    net = guarded()
    net.send("a", at("c", 17), SECRET, **wish)
    net.run()
    [message] = messages(net, "a", "b")
    return message


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_nobody_else_can_say_that_a_message_was_verified() -> None:
    message = sent_by_a(sender_id=ALICE)
    assert message.security is not None
    message.security.authenticated, message.security.signature_type = True, 5
    for guard in (NO_KEYS, KeyGuard(keys_of("c"), Settings())):
        net = guarded()
        net.nodes["c"].guard = guard
        net.start("c")
        arrive(net, "c", message, peer="b")
        [there] = kept(net, "c", "notes")
        assert there.security is not None
        assert (there.security.authenticated, there.security.signature_type) == (False, 0)


CHANGES: Final[dict[str, Callable[[UserMessage], None]]] = {
    "body": lambda m: setattr(m.properties, "message_body", SECRET + b"!"),
    "label": lambda m: setattr(m.properties, "label", "another"),
    "tag": lambda m: setattr(m.properties, "application_tag", 7),
    "source": lambda m: setattr(m.user, "source_queue_manager", guid_of("b")),
    "queue": lambda m: setattr(m.user, "destination_queue", 18),
    "signature": lambda m: setattr(m.security, "signature", bytes(128)),
    "certificate": lambda m: setattr(m.security, "sender_cert", signer("mallory")[1].der),
    "no certificate": lambda m: setattr(m.security, "sender_cert", b"none"),
}


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_message_that_is_not_as_it_was_signed_is_refused(change: Callable[[UserMessage], None]) -> None:
    message = sent_by_a(sender_id=ALICE, **by("alice"))
    change(message)
    net = guarded(NOTES, replace(NOTES, name="others", identifier=18))
    arrive(net, "c", message, peer="b")
    assert bodies(net, "c", "notes") == bodies(net, "c", "others") == []
    assert refusal(net)[0] == "NACK_BAD_SIGNATURE"


@pytest.mark.long
def test_a_message_that_is_refused_is_not_kept_by_its_refusal() -> None:
    """A stranger's message may be large, and many of them may arrive before garbage is collected."""
    message = sent_by_a(**by("alice"))
    assert message.security is not None
    message.security.signature = bytes(128)
    guard = KeyGuard(keys_of("c"), Settings())
    with suppress(ProtectionError):
        guard.opened(message, (), START)
    gc.collect()
    gc.disable()
    try:
        with suppress(ProtectionError):
            guard.opened(message, (), START)
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_a_certificate_of_somebody_else_than_the_sender_that_it_names_is_refused() -> None:
    net = guarded()
    net.send("a", at("c", 17), SECRET, sender_id=ALICE, **by("mallory"))
    net.run()
    assert bodies(net, "c", "notes") == []
    assert refusal(net) == ("NACK_BAD_SIGNATURE", f"the certificate is none that is known here of {ALICE}")
    net.send("a", at("c", 17), SECRET, **by("mallory"))
    net.run()
    assert bodies(net, "c", "notes") == [SECRET], "it names nobody"


@pytest.mark.spec("[MS-MQQB] 3.1.2.13")
@pytest.mark.spec("[MS-MQQB] 3.1.6.13")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3.4")
def test_a_user_s_certificate_counts_for_a_time_after_it_was_seen() -> None:
    net = guarded(settings=Settings(user_cert_lifetime_ms=60_000))
    guard = net.nodes["c"].guard
    assert isinstance(guard, KeyGuard)

    def taken() -> bool:
        before = len(bodies(net, "c", "notes"))
        net.send("a", at("c", 17), SECRET, sender_id=ALICE, **by("alice"))
        net.run()
        return len(bodies(net, "c", "notes")) > before

    assert taken()
    guard.renew(Keys())
    net.pass_ms(59_000)
    assert taken(), "it was seen less than a minute ago"
    net.pass_ms(62_000)
    assert not taken()


def test_a_certificate_that_is_not_valid_today_is_taken_and_said() -> None:
    net = guarded()
    net.set_clock(31 * 86_400)
    net.send("a", at("c", 17), SECRET, **by("alice"))
    net.run()
    assert bodies(net, "c", "notes") == [SECRET]
    [note] = [note for note in net.nodes["c"].notes if note.name == "certificate-not-valid"]
    assert note.facts["subject"] == "CN=alice"


def test_a_signed_message_that_comes_again_as_another_is_taken_and_said() -> None:
    net = guarded()
    message = sent_by_a(sender_id=ALICE, **by("alice"))
    for number in (1, 2, 1, 3):
        message.user.message_id = number
        arrive(net, "c", message, peer="b")
    assert bodies(net, "c", "notes") == [SECRET] * 3, "one came twice under its own name"
    seen = [note.facts for note in net.nodes["c"].notes if note.name == "signature-seen-before"]
    assert [facts["message_id"] for facts in seen] == [2, 3]
    assert {str(facts["first"]).rpartition("\\")[2] for facts in seen} == {"1"}


def test_whose_key_is_replaced_signs_with_the_new_one_at_once() -> None:
    net = guarded()
    for name in ("alice", "mallory"):
        key, certificate = signer(name)
        guard = net.nodes["a"].guard
        assert isinstance(guard, KeyGuard)
        guard.renew(replace(keys_of("a"), signers={"somebody": (Signer(certificate.der), key)}))
        net.send("a", at("c", 17), SECRET, **by("somebody"))
        net.run()
    assert [message.security.sender_cert for message in kept(net, "c", "notes") if message.security] == [
        signer(name)[1].der for name in ("alice", "mallory")
    ]


def test_of_keys_that_all_fit_a_body_the_one_counts_with_which_the_signature_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key pair made after the message is the wrong one, but may yield a session key, and that key may yield a
    body.
    """
    message = sent_by_a(**private(), **by("alice"))
    body = message.properties.message_body
    wrong = next(filter(partial(fits, body), (number.to_bytes(32) for number in range(2**16))))
    newer = new_key_pair(512)
    monkeypatch.setattr(newer, "rsa", FakeKey(wrong))
    net = guarded()
    net.nodes["c"].guard = KeyGuard(replace(keys_of("c"), own={"aes": (newer, own_key(512))}), Settings())
    net.start("c")
    arrive(net, "c", message, peer="b")
    assert bodies(net, "c", "notes") == [SECRET]
    message.properties.label = "another"
    message.user.message_id += 1
    arrive(net, "c", message, peer="b")
    assert refusal(net)[0] == "NACK_BAD_SIGNATURE"


def fits(body: bytes, octets: bytes) -> bool:
    with suppress(ProtectionError):
        return bool(decrypt(SessionKey(AES_256, octets), body))
    return False


def test_who_has_no_key_cannot_sign() -> None:
    net = guarded()
    with pytest.raises(
        UsageError, match=r"no key 'bob' here to sign with; there is alice, mallory; .*--user NAME"
    ):
        net.send("a", at("c", 17), SECRET, **by("bob"))


# What queues ask


def outcome(net: Net, **wish: Any) -> str:
    """Send one message of each kind; return "taken", or the class with which both are refused."""
    net.send("a", at("c", 17), SECRET, **wish)
    net.send("a", at("c"), SECRET, transactional=True, **wish)
    net.pass_ms(2_000)
    taken = bodies(net, "c", "notes") + bodies(net, "c", "orders")
    classes = {note.facts["reason"] for note in net.nodes["c"].notes if note.name == "message-refused"}
    assert len(taken) in (0, 2), "transactional or not, it is the same"
    [one] = {"taken"} if taken else classes
    return str(one)


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.2")
@pytest.mark.parametrize(
    ("protection", "wish", "comes_to"),
    [
        ({"authenticated": True}, {}, "NACK_BAD_SIGNATURE"),
        ({"authenticated": True}, {"sender_id": ALICE}, "NACK_BAD_SIGNATURE"),
        ({"authenticated": True}, by("alice"), "taken"),
        ({"privacy": "body"}, {}, "NACK_BAD_ENCRYPTION"),
        ({"privacy": "body"}, {"privacy_level": 5}, "taken"),
        ({"privacy": "none"}, {"privacy_level": 5}, "NACK_BAD_ENCRYPTION"),
        ({"privacy": "none"}, {}, "taken"),
        ({"senders": (ALICE,)}, {}, "NACK_ACCESS_DENIED"),
        ({"senders": (ALICE,)}, {"sender_id": "S-1-5-18"}, "NACK_ACCESS_DENIED"),
        ({"senders": (ALICE,)}, {"sender_id": ALICE}, "taken"),
        ({"senders": ("S-1-1-0",)}, {"sender_id": ALICE}, "taken"),
        ({"senders": ("S-1-1-0",)}, {}, "NACK_ACCESS_DENIED"),
        ({"senders": ("S-1-5-7",)}, {}, "taken"),
        ({"senders": (fingerprint(signer("alice")[1].der),)}, by("alice"), "taken"),
        ({"senders": (fingerprint(signer("alice")[1].der),)}, by("mallory"), "NACK_ACCESS_DENIED"),
        ({"senders": (fingerprint(signer("alice")[1].der),)}, {}, "NACK_ACCESS_DENIED"),
    ],
)
def test_a_queue_takes_what_it_asks_for(
    protection: dict[str, Any], wish: dict[str, Any], comes_to: str
) -> None:
    assert outcome(asking(**protection), **wish) == comes_to


@pytest.mark.parametrize(
    ("protection", "wish", "says"),
    [
        ({"authenticated": True}, {}, "takes signed messages alone"),
        ({"privacy": "body"}, {}, "takes encrypted messages alone"),
        ({"privacy": "none"}, {"privacy_level": 5}, "takes no encrypted messages"),
        ({"senders": (ALICE,)}, {}, "none of those who may send"),
        ({}, {"sender_id": ALICE, **by("mallory")}, f"none that is known here of {ALICE}"),
    ],
)
def test_who_sends_to_a_queue_of_his_own_node_is_told_at_once(
    protection: dict[str, Any], wish: dict[str, Any], says: str
) -> None:
    net = guarded()
    net.nodes["a"].queues = (replace(NOTES, protection=Protection(**protection)),)
    net.start("a")
    with pytest.raises(UsageError, match=says):
        net.send("a", at("a", 17), SECRET, **wish)
    assert bodies(net, "a", "notes") == []


def test_what_is_sent_to_a_queue_of_the_same_node_is_in_clear_and_verified() -> None:
    net = guarded()
    net.nodes["a"].queues = (replace(NOTES, protection=Protection(authenticated=True, privacy="body")),)
    net.start("a")
    net.send("a", at("a", 17), SECRET, privacy_level=5, **by("alice"))
    net.run()
    [there] = kept(net, "a", "notes")
    assert there.properties.message_body == SECRET
    assert there.security is not None
    assert (there.security.authenticated, there.security.body_encrypted) == (True, False)


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.2")
@pytest.mark.parametrize("targets", ["a", "ac"])
def test_the_quota_of_a_queue_of_the_same_node_counts_signatures(targets: str) -> None:
    net = guarded()
    declared = replace(NOTES, quota_bytes=10_000)
    net.nodes["a"].queues = (declared,)
    net.start("a")
    core, draft = net.nodes["a"].up, Draft(body=b"odd", signer="alice")
    signed = copies([at(target, 17) for target in targets], [draft])
    core.enqueue(signed, net.now)
    [notes] = [each for each in core.status().local if each.name == "notes"]
    fitting = 10_000 // notes.size_bytes
    with pytest.raises(QuotaExceeded, match="notes is full"):
        core.enqueue(signed * fitting, net.now)
    core.enqueue(signed * (fitting - 1), net.now)


# Every bit


def flipped(packet: bytes, field: bytes) -> Iterable[bytes]:
    """Yield copies of a packet, each with one bit of a field changed; only some bits are tried, because all would take
    too long.
    """
    start = packet.index(field)
    for number in range(0, len(field) * 8, 7):
        changed = bytearray(packet)
        changed[start + number // 8] ^= 1 << number % 8
        yield bytes(changed)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("field", ["encryption_key", "signature", "sender_cert", "message_body"])
def test_no_bit_of_what_is_signed_and_encrypted_can_be_changed(field: str) -> None:
    message = sent_by_a(sender_id=ALICE, privacy_level=5, **by("alice"))
    value = getattr(message.security, field, b"") or getattr(message.properties, field)
    net = guarded()
    count = 0
    for number, packet in enumerate(flipped(encode_packet(message), value)):
        changed = decode_message(packet)
        changed.user.message_id = number + 10
        arrive(net, "c", changed, peer="b")
        count += 1
    assert bodies(net, "c", "notes") == []
    refusals = [note.facts["reason"] for note in net.nodes["c"].notes if note.name == "message-refused"]
    assert len(refusals) == count
    assert set(refusals) <= {"NACK_BAD_ENCRYPTION", "NACK_BAD_SIGNATURE"}


def test_the_intermediate_sends_on_what_it_got() -> None:
    net = guarded()
    net.send("a", at("c", 17), SECRET, sender_id=ALICE, privacy_level=5, **by("alice"))
    net.run()
    [came] = [packet for packet in packets(net, "a", "b") if len(packet) > 600]
    [went] = [packet for packet in packets(net, "b", "c") if len(packet) > 600]
    before = decode_message(came)
    before.user.hop_count += 1
    assert decode_message(went) == replace(
        before, session=decode_message(went).session, base=decode_message(went).base
    )


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
@pytest.mark.parametrize("source", ["a", "c"])
def test_what_was_encrypted_is_repeated_in_no_acknowledgment(source: str) -> None:
    net = guarded()
    net.send(
        source,
        at("c", 17),
        SECRET,
        privacy_level=5,
        time_to_be_received_s=1,
        admin_queue=at("a", 5).name,
        acknowledgments=REPORT_NO_RECEIPT,
    )
    net.pass_ms(5_000)
    assert administration(net, "a") == [MessageClass.NACK_RECEIVE_TIMEOUT]
    assert SECRET not in crossed(net)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
@pytest.mark.parametrize("transactional", [False, True])
def test_a_key_that_is_too_short_for_the_hash_signs_nothing_and_nothing_has_changed(
    transactional: bool,
) -> None:
    net, short = guarded(), own_key(512)
    guard, core = net.nodes["a"].guard, net.nodes["a"].up
    assert isinstance(guard, KeyGuard)
    alice = Signer(self_signed(short, "alice", START.utc_s - 60, 30).der)
    guard.renew(replace(keys_of("a"), signers={"alice": (alice, short)}))
    there, name = (at("c"), "orders") if transactional else (at("c", 17), "notes")
    drafts = [
        (there, Draft(body=b"plain", transactional=transactional)),
        (there, Draft(body=SECRET, transactional=transactional, signer="alice")),
    ]
    before = core.inspect().sending.stored_bytes
    with pytest.raises(UsageError, match="sha512 does not fit a key of 512 bits: make a longer key"):
        core.enqueue(drafts, net.now)
    assert core.inspect().sending.stored_bytes == before
    net.run()
    assert bodies(net, "c", name) == []
    guard.renew(keys_of("a"))
    core.enqueue(drafts, net.now)
    net.run()
    assert bodies(net, "c", name) == [b"plain", SECRET]
