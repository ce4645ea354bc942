"""PKCS #11 URIs: what they name, what is refused, and that no error repeats a PIN."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.base.errors import UsageError
from simulator.security.keyuris import KeyUri, in_file, is_in_file, parse_uri, quoted, uri_in_file
from tests.programs import needs

URI = "pkcs11:token=office;object=aes?module-path=/lib/p11.so&pin-source=file:/etc/pin"


def test_it_names_a_token_a_key_a_library_and_the_file_with_the_pin() -> None:
    assert parse_uri(URI) == KeyUri(
        URI, "office", "", "", "", "aes", b"", Path("/lib/p11.so"), Path("/etc/pin")
    )
    whole = parse_uri(
        "PKCS11:serial=1f;manufacturer=A%20B;model=v2;id=%01%ff;type=private?module-path=/lib/p%3A11.so"
    )
    assert (whole.serial, whole.manufacturer, whole.model, whole.id) == ("1f", "A B", "v2", b"\x01\xff")
    assert (whole.module, whole.pin_source) == (Path("/lib/p:11.so"), None)
    assert str(parse_uri(URI)) == "key aes of token office"
    assert str(whole) == "key with id 01ff of token with serial 1f"


@pytest.mark.parametrize("source", ["/etc/pin", "file:/etc/pin", "file:///etc/pin"])
def test_the_file_with_the_pin_is_a_path_or_a_uri(source: str) -> None:
    assert parse_uri(URI.replace("file:/etc/pin", source)).pin_source == Path("/etc/pin")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("pkcs12:token=a", "no PKCS #11 URI: it begins with pkcs11:"),
        (URI + "&pin-value=4711", "pin-value would show the PIN to everybody"),
        (URI + "&PIN-VALUE=4711", "pin-value would show the PIN to everybody"),
        (URI + "&pin=4711", "'pin' is no attribute; there are token, serial"),
        (URI + "&module-name=softhsm2", "module-name is not looked up here; write module-path="),
        (URI.replace(";", ";slot-id=1;"), "slot-id is not looked at here; name the token by token, serial"),
        (URI.replace(";", ";object=b;"), "object stands in it twice"),
        (URI.replace("=aes", ""), "object has no value"),
        (URI.replace("aes", ""), "object has no value"),
        (URI.replace("aes", "a%2"), "object has a character that has to be written as % and two digits"),
        (URI.replace("aes", "a b"), "object has a character that has to be written as % and two digits"),
        (URI.replace("aes", "%ff"), "object is no UTF-8"),
        (URI.replace("aes", "%00"), "object has a NUL in it"),
        (URI.replace("object=aes", "type=private"), "which key? Add object=LABEL or id=%01"),
        (URI.replace("token=office;", ""), "which token? Add token=LABEL or serial=NUMBER"),
        (URI.replace("aes", "aes;type=cert"), "type has to be private"),
        (URI.replace("/lib/", "lib/"), "which library? Add ?module-path= and its whole path"),
        (URI.partition("?")[0], "which library? Add ?module-path= and its whole path"),
        (URI.replace("file:/etc/pin", "%7Cgetpin"), "pin-source has to be a file with its whole path"),
        (URI.replace("file:/etc/pin", "https://x"), "pin-source has to be a file with its whole path"),
        (URI + "&token=office", "token may not stand behind the question mark"),
        (URI.replace(";", ";pin-source=/x;"), "pin-source may not stand before it"),
    ],
)
def test_what_is_of_no_use_is_told_in_one_line_without_a_pin(uri: str, says: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_uri(uri)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "4711" not in str(refusal.value)


def told(ask: Callable[[], KeyUri]) -> str:
    """What an error says; nothing if there is none."""
    try:
        ask()
    except UsageError as error:
        return str(error)
    return ""


@given(st.text(max_size=40))
def test_any_text_is_a_uri_or_told_to_be_none(text: str) -> None:
    for each in (text, f"pkcs11:{text}", URI + text, f"pkcs11:token={quoted(text)};object=a?module-path=/a"):
        assert len(told(partial(parse_uri, each)).splitlines()) <= 1


def test_a_file_has_it_as_others_write_it() -> None:
    """Made with asn1crypto, as uri2pem.py of pkcs11-provider does it."""
    theirs = (
        b"-----BEGIN PKCS#11 PROVIDER URI-----\n"
        b"MFAaGVBLQ1MjMTEgUHJvdmlkZXIgVVJJIHYxLjAMM3BrY3MxMTp0b2tlbj10O29i\n"
        b"amVjdD1vO3R5cGU9cHJpdmF0ZT9tb2R1bGUtcGF0aD0vcA==\n"
        b"-----END PKCS#11 PROVIDER URI-----\n"
    )
    uri = parse_uri("pkcs11:token=t;object=o;type=private?module-path=/p")
    assert uri_in_file(theirs) == uri
    assert in_file(uri) == uri.text.encode() + b"\n" + theirs
    assert is_in_file(theirs)
    assert not is_in_file(b"-----BEGIN PRIVATE KEY-----")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=400))
def test_what_is_written_is_read(label: str) -> None:
    uri = parse_uri(f"pkcs11:token={quoted(label)};object=a?module-path=/a")
    assert uri.token == label
    assert uri_in_file(in_file(uri)) == uri


@given(st.data())
def test_a_damaged_file_is_told_to_be_one(data: st.DataObject) -> None:
    whole = bytearray(in_file(parse_uri(URI)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    hurt = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    assert len(told(partial(uri_in_file, hurt)).splitlines()) <= 1


@needs("openssl")
def test_openssl_sees_the_same_strings_in_it(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(in_file(parse_uri(URI)))
    seen = subprocess.run(
        ["openssl", "asn1parse", "-in", path], check=True, capture_output=True, text=True
    ).stdout
    assert "VISIBLESTRING     :PKCS#11 Provider URI v1.0" in seen
    assert f"UTF8STRING        :{URI}" in seen
