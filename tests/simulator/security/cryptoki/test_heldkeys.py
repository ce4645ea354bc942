"""Keys in a token of SoftHSM: they do what keys in files do, and pkcs11-tool says the same of it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pkcs11
import pytest
from pkcs11 import Attribute, KeyType, MechanismFlag, TokenFlag

from mqproto.base.errors import UsageError
from mqproto.security import (
    HASHES,
    HeldKeyPair,
    KeyAwayError,
    PublicKey,
    new_session_key,
    open_session_key,
    provider_by_word,
    seal_session_key,
    self_signed,
    sign,
    verify,
)
from mqproto.security.held import DIGEST_INFOS
from mqproto.wire import SimpleBlob
from mqproto.wire.layouts.keyblobs import AES_256
from simulator.security.cryptoki import heldkeys
from simulator.security.cryptoki.heldkeys import HeldKey, key_in_token
from simulator.security.keyuris import parse_uri
from tests.simulator.security.cryptoki.softhsm import (
    LIBRARY,
    PIN,
    Token,
    flags_of,
    forget,
    needs_softhsm,
    new_token,
)

AES = provider_by_word("aes")


def pair_of(uri: str, *, signs: bool = False) -> HeldKeyPair:
    return key_in_token(parse_uri(uri), b"seed", is_for_signatures=signs)[0]


@needs_softhsm
@pytest.mark.parametrize("algorithm", HASHES)
def test_pkcs11_tool_verifies_what_the_token_signs_for_us(
    token: Token, tmp_path: Path, algorithm: int
) -> None:
    pair = pair_of(token.uri("signing"), signs=True)
    assert pair.bits == 1_040
    signature = sign(algorithm, pair, b"data")
    verify(algorithm, pair.public, b"data", signature)
    name = HASHES[algorithm].name
    info, signed = tmp_path / "info", tmp_path / "signature"
    info.write_bytes(DIGEST_INFOS[name] + hashlib.new(name, b"data").digest())
    signed.write_bytes(signature[::-1])
    ask = ("--verify", "-m", "RSA-PKCS", "--id", "02", "--input-file", info, "--signature-file", signed)
    assert "Signature is valid" in token.tool(*ask)
    info.write_bytes(DIGEST_INFOS[name] + hashlib.new(name, b"other").digest())
    assert "Signature is valid" not in token.tool(*ask)


@needs_softhsm
def test_pkcs11_tool_opens_what_is_encrypted_for_the_token_and_so_do_we(token: Token, tmp_path: Path) -> None:
    pair = pair_of(token.uri("aes"))
    read = tmp_path / "public.der"
    token.tool("--read-object", "--type", "pubkey", "--id", "01", "--output-file", read)
    assert PublicKey.from_bytes(read.read_bytes()) == pair.public
    key = new_session_key(AES, AES_256)
    blob = seal_session_key(key, pair.public)
    assert open_session_key(blob, pair, AES) == key
    block, opened = tmp_path / "block", tmp_path / "opened"
    block.write_bytes(blob.encrypted_key[::-1])
    token.tool("--decrypt", "-m", "RSA-PKCS", "--id", "01", "--input-file", block, "--output-file", opened)
    assert opened.read_bytes() == key.octets


@needs_softhsm
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_a_block_that_is_wrong_gets_no_answer_and_costs_no_session(
    token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_of(token.uri("aes"))
    monkeypatch.setattr(HeldKey, "_find", None)
    for block in (bytes(128), b"\x7f" * 128, pair.public.encrypted(b"short")[::-1]):
        blob = SimpleBlob(session_key_algorithm=AES_256, encrypted_key=block)
        assert len(open_session_key(blob, pair, AES).octets) == 32
    key = new_session_key(AES, AES_256)
    assert open_session_key(seal_session_key(key, pair.public), pair, AES) == key


@needs_softhsm
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_a_block_costs_one_that_opens_and_one_that_does_not_whichever_it_is(
    token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SoftHSM's error alone would take a tenth longer, and tell a stranger what he is not to know."""
    found, seen = HeldKey._found, list[bool]()

    class Counting:
        def __init__(self, key: Any) -> None:
            self._key = key

        def __getitem__(self, name: Attribute) -> object:
            return self._key[name]

        def decrypt(self, block: bytes, **more: Any) -> bytes:
            seen.append(False)
            opened = bytes(self._key.decrypt(block, **more))
            seen[-1] = True
            return opened

    monkeypatch.setattr(HeldKey, "_found", lambda self, session: Counting(found(self, session)))
    pair = pair_of(token.uri("aes"))
    for octets, opens in ((bytes(32), True), (b"short", True), (None, False)):
        seen.clear()
        block = bytes(128) if octets is None else pair.public.encrypted(octets)[::-1]
        open_session_key(SimpleBlob(session_key_algorithm=AES_256, encrypted_key=block), pair, AES)
        assert seen == [opens, not opens]


@contextmanager
def logged_in(token: Token) -> Iterator[pkcs11.Session]:
    """A session of the test's own; all others are over."""
    forget()
    with pkcs11.lib(str(LIBRARY)).get_token(token_label=token.label).open(rw=True, user_pin=PIN) as session:
        yield session


@needs_softhsm
def test_a_key_that_is_of_no_use_is_told_in_one_line(token: Token) -> None:
    with logged_in(token) as session:
        for label, capability, bits in (
            ("exchanges", MechanismFlag.ENCRYPT | MechanismFlag.DECRYPT, 1_024),
            ("signs", MechanismFlag.SIGN | MechanismFlag.VERIFY, 1_024),
            ("twice", MechanismFlag.SIGN | MechanismFlag.VERIFY, 512),
            ("twice", MechanismFlag.SIGN | MechanismFlag.VERIFY, 512),
        ):
            session.generate_keypair(
                KeyType.RSA, bits, store=True, label=label, id=label.encode(), capabilities=capability
            )
    for key, signs, says in (
        (
            "none",
            False,
            "is not there; its private keys are aes, curve, exchanges, signing, signs, twice, tw",
        ),
        ("curve", True, "is not of RSA, which is all that MSMQ knows: name another"),
        ("exchanges", True, "may not sign (CKA_SIGN): make one that may"),
        ("signs", False, "may not decrypt (CKA_DECRYPT): make one that may"),
        ("twice", True, "there are 2: add id= to the URI"),
    ):
        with pytest.raises(UsageError) as refusal:
            pair_of(token.uri(key), signs=signs)
        assert str(refusal.value).startswith(f"key {key} of token office")
        assert says in str(refusal.value)
    assert pair_of(token.uri("exchanges")).bits == 1_024
    assert pair_of(token.uri("signs"), signs=True).bits == 1_024


@needs_softhsm
def test_a_session_that_is_lost_is_opened_anew(token: Token, capfd: pytest.CaptureFixture[str]) -> None:
    exchange, signing = pair_of(token.uri("aes")), pair_of(token.uri("signing"), signs=True)
    for _ in range(2):
        forget()
        key = new_session_key(AES, AES_256)
        assert open_session_key(seal_session_key(key, exchange.public), exchange, AES) == key
        forget()
        verify(0x800C, signing.public, b"data", sign(0x800C, signing, b"data"))
    assert capfd.readouterr() == ("", "")


@needs_softhsm
def test_a_token_that_was_taken_away_is_named_and_found_when_it_is_back(
    token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_of(token.uri("signing"), signs=True)
    exchange = pair_of(token.uri("aes"))
    [*folders] = (token.folder / "tokens").iterdir()
    for each in folders:
        each.rename(token.folder / each.name)
    try:
        for _ in range(2):
            with pytest.raises(KeyAwayError, match=r"token office is not there; .* has none: plug"):
                sign(0x800C, pair, b"data")
            blob = seal_session_key(new_session_key(AES, AES_256), exchange.public)
            with pytest.raises(KeyAwayError, match="token office is not there"):
                open_session_key(blob, exchange, AES)
    finally:
        for each in folders:
            (token.folder / each.name).rename(each)
    with pytest.raises(KeyAwayError, match="token office is not there"):
        sign(0x800C, pair, b"data")
    monkeypatch.setattr(heldkeys, "RETRY_S", 0)
    verify(0x800C, pair.public, b"data", sign(0x800C, pair, b"data"))


@needs_softhsm
def test_a_key_may_ask_for_the_pin_each_time_and_a_wrong_one_is_given_once(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heldkeys, "RETRY_S", 0)
    token = new_token(tokens, "careful")
    pair = pair_of(token.make("signing", 1, "rsa:1024", "--always-auth"), signs=True)
    assert _attribute(token, "signing", Attribute.ALWAYS_AUTHENTICATE) is True
    verify(0x800C, pair.public, b"data", sign(0x800C, pair, b"data"))
    token.pin.write_text("0000")
    with pytest.raises(
        KeyAwayError, match=f"token careful refuses the PIN in {token.pin}, which is not tried"
    ):
        sign(0x800C, pair, b"data")
    for _ in range(5):
        with pytest.raises(KeyAwayError, match=r"a wrong PIN was tried|refuses the PIN"):
            sign(0x800C, pair, b"data")
    assert flags_of(token) & TokenFlag.USER_PIN_COUNT_LOW
    assert not flags_of(token) & TokenFlag.USER_PIN_FINAL_TRY
    token.tool("--list-objects")
    assert not flags_of(token) & TokenFlag.USER_PIN_COUNT_LOW
    with pytest.raises(KeyAwayError, match=r"refuses the PIN"):
        sign(0x800C, pair, b"data")
    assert not flags_of(token) & TokenFlag.USER_PIN_COUNT_LOW, "the same is not tried again"
    token.pin.write_text(PIN)
    verify(0x800C, pair.public, b"data", sign(0x800C, pair, b"data"))


def _attribute(token: Token, key: str, name: Attribute) -> object:
    with logged_in(token) as session:
        [found] = session.get_objects({Attribute.LABEL: key, Attribute.CLASS: pkcs11.ObjectClass.PRIVATE_KEY})
        return found[name]


@needs_softhsm
def test_a_certificate_that_lies_beside_the_key_is_found(tokens: Path, tmp_path: Path) -> None:
    token = new_token(tokens, "certified")
    uri = parse_uri(token.make("signing", 7))
    pair, beside = key_in_token(uri, b"seed", is_for_signatures=True)
    assert beside is None
    certificate = self_signed(pair, "office", int(time.time()), 30)
    der = tmp_path / "certificate.der"
    der.write_bytes(certificate.der)
    token.tool("--write-object", der, "--type", "cert", "--id", "07", "--label", "whatever")
    assert key_in_token(uri, b"seed", is_for_signatures=True)[1] == certificate
    assert certificate.is_issued_by(certificate)


@needs_softhsm
def test_a_key_that_took_the_place_of_another_under_its_name_is_not_taken_for_it(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heldkeys, "RETRY_S", 0)
    token = new_token(tokens, "rolled")
    pair = pair_of(token.make("aes", 1))
    for kind in ("privkey", "pubkey"):
        token.tool("--delete-object", "--type", kind, "--id", "01")
    token.make("aes", 1)
    forget()
    blob = seal_session_key(new_session_key(AES, AES_256), pair.public)
    with pytest.raises(
        KeyAwayError, match="key aes of token rolled is another one than before: mqproto keys import"
    ):
        open_session_key(blob, pair, AES)


@needs_softhsm
def test_a_key_that_does_not_do_what_it_says_is_told(token: Token, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[tuple[str, Callable[..., object], bool, str]] = [
        ("signed", lambda self, info: bytes(130), True, "the token signs wrong, or with another key"),
        ("decrypted", lambda self, block: None, False, "it does not open what is encrypted for it"),
    ]
    for name, does, signs, says in wrong:
        with monkeypatch.context() as patch:
            patch.setattr(HeldKey, name, does)
            with pytest.raises(UsageError, match=says):
                pair_of(token.uri("signing" if signs else "aes"), signs=signs)
