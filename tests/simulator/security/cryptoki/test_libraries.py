"""Sessions with tokens: which token is meant, and that no wrong PIN is tried a second time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pkcs11 import TokenFlag

from mqproto.base.errors import UsageError
from simulator.security.cryptoki.heldkeys import key_in_token
from simulator.security.cryptoki.libraries import AbsentError, library_at
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


def told(uri: str) -> str:
    """What is said of a key that cannot be had."""
    with pytest.raises(UsageError) as refusal:
        key_in_token(parse_uri(uri), b"seed", is_for_signatures=True)
    text = str(refusal.value)
    assert "\n" not in text
    assert PIN not in text
    return text


@needs_softhsm
def test_a_token_is_named_by_all_that_the_uri_says(token: Token) -> None:
    library = library_at(LIBRARY)
    assert library_at(LIBRARY) is library
    uri = token.uri("signing")
    with library.lock:
        session = library.session(parse_uri(uri))
        serial = bytes(session.token.serial).decode().strip()
        for same in (";manufacturer=SoftHSM%20project", ";model=SoftHSM%20v2", f";serial={serial}"):
            assert library.session(parse_uri(uri.replace(";", f"{same};"))) is session
        assert library.has(session)
        for other in (";manufacturer=a", ";model=b", ";serial=1"):
            with pytest.raises(AbsentError, match=rf"token office is not there; {LIBRARY} has .*office"):
                library.session(parse_uri(uri.replace(";", f"{other};")))
        assert not library.has(session)


@needs_softhsm
def test_of_two_tokens_with_one_label_neither_is_tried(tokens: Path) -> None:
    first = new_token(tokens, "twin")
    new_token(tokens, "twin")
    text = told(first.uri("signing"))
    assert text.startswith("token twin: there are 2: add serial=, one of ")
    assert not flags_of_all() & TokenFlag.USER_PIN_COUNT_LOW


def flags_of_all() -> int:
    import pkcs11

    forget()
    found = 0
    for token in pkcs11.lib(str(LIBRARY)).get_tokens(token_label="twin"):
        found |= int(token.flags)
    return found


@needs_softhsm
def test_a_token_or_a_library_that_is_not_there_is_told_in_one_line(token: Token, tmp_path: Path) -> None:
    none = token.uri("signing").replace("token=office", "token=none")
    assert f"token none is not there; {LIBRARY} has" in told(none)
    missing = token.uri("signing", **{"module-path": "/no/such.so"})
    assert (
        told(missing) == "/no/such.so: no such library: name that of the token's manufacturer as module-path"
    )
    text = tmp_path / "text.so"
    text.write_text("no library")
    wrong = told(token.uri("signing", **{"module-path": str(text)}))
    assert wrong.startswith(f"{text}: no PKCS #11 library that works: ")


@needs_softhsm
def test_a_pin_is_one_line_in_a_file_for_its_owner_alone(token: Token, tmp_path: Path) -> None:
    pin = tmp_path / "pin"
    uri = token.uri("signing", **{"pin-source": str(pin)})
    forget()
    assert told(uri) == f"{pin}: No such file or directory: the PIN has to be in it"
    for content in (b"", b"\n", f"{PIN}\n{PIN}\n".encode(), b"\xff\xfe"):
        pin.write_bytes(content)
        pin.chmod(0o600)
        assert told(uri) == f"{pin}: one line with the PIN has to be in it, and nothing else"
    pin.write_text(PIN)
    pin.chmod(0o640)
    assert told(uri) == f"{pin}: others can read the PIN (mode 640): chmod 600 it"
    pin.chmod(0o600)
    assert key_in_token(parse_uri(uri), b"seed", is_for_signatures=True)[0].bits == 1_040
    forget()
    assert "token office asks for a PIN: add pin-source=file:" in told(
        token.uri("signing", **{"pin-source": ""})
    )


@needs_softhsm
def test_a_wrong_pin_is_tried_once_and_none_until_somebody_else_logged_in(tokens: Path) -> None:
    token = new_token(tokens, "locked")
    uri = token.make("signing", 1)
    token.pin.write_text("wrong")
    refused = (
        f"token locked refuses the PIN in {token.pin}, which is not tried again: correct it, and log in once"
    )
    assert refused in told(uri)
    assert flags_of(token) & TokenFlag.USER_PIN_COUNT_LOW
    for pin in ("wrong", "another", PIN):
        token.pin.write_text(pin)
        assert (
            "token locked: a wrong PIN was tried, and another might lock it, so none is tried here"
            in told(uri)
        )
    token.tool("--list-objects")
    token.pin.write_text("wrong")
    assert refused in told(uri)
    assert not flags_of(token) & TokenFlag.USER_PIN_COUNT_LOW, "this one was not tried a second time"
    token.pin.write_text(PIN)
    assert key_in_token(parse_uri(uri), b"seed", is_for_signatures=True)[0].bits == 1_024


@needs_softhsm
def test_a_pin_that_is_locked_or_was_never_set_is_told(token: Token, monkeypatch: pytest.MonkeyPatch) -> None:
    from simulator.security.cryptoki import libraries

    class Flags:
        """SoftHSM locks nothing."""

        LOGIN_REQUIRED = TokenFlag.LOGIN_REQUIRED
        TOKEN_INITIALIZED = TokenFlag.TOKEN_INITIALIZED
        USER_PIN_LOCKED = TokenFlag.TOKEN_INITIALIZED

    forget()
    monkeypatch.setattr(libraries, "TokenFlag", Flags)
    locked = "token office: its PIN is locked: unlock it with the token's own tool"
    assert told(token.uri("signing")) == locked
    monkeypatch.setattr(Flags, "USER_PIN_LOCKED", 0)
    monkeypatch.setattr(Flags, "USER_PIN_INITIALIZED", 0, raising=False)
    assert told(token.uri("signing")) == "token office has no PIN yet: give it one with the token's own tool"
