"""`mqproto keys` with keys in tokens, as a person types it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.security import Certificate
from simulator.security import keyfiles
from simulator.security.keyfiles import SEED, Kept, KeyFiles
from simulator.security.keyuris import in_file, parse_uri
from simulator.topology.places import keys_path
from tests.security.keys import own_key
from tests.simulator.security.cryptoki.softhsm import LIBRARY, PIN, Token, needs_softhsm, new_token
from tests.simulator.typed import Done, in_process


def keys(folder: Path, *arguments: str | Path) -> Done:
    done = in_process("keys", *arguments, "--directory", folder)
    assert PIN not in done.out + done.err
    return done


@needs_softhsm
def test_a_key_is_taken_by_its_uri_and_shown_and_stays_in_its_token(token: Token, tmp_path: Path) -> None:
    for use, key in (("aes", "aes"), ("signing", "signing"), ("user-alice", "signing")):
        done = keys(tmp_path, "import", "sender", token.uri(key), "--use", use)
        assert (done.status, done.err) == (0, ""), use
        assert f", key {key} of token office, {LIBRARY}" in done.out
    assert keys(tmp_path, "show", "sender").out.count(" of token office, ") == 3
    shown = json.loads(keys(tmp_path, "show", "sender", "--json").out)["keys"]
    assert [each["uri"] for each in shown] == [token.uri(key) for key in ("aes", "signing", "signing")]
    assert shown[1]["certificate"]["subject"] == "CN=sender"
    assert sorted(path.name for path in (tmp_path / "sender.public").iterdir()) == ["aes.blob", "signing.cer"]
    assert (tmp_path / "sender.public" / "aes.blob").read_bytes().hex() == shown[0]["blob"]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in keys_path(tmp_path, "sender").iterdir()}
    assert modes == {0o600}

    out = tmp_path / "private"
    for arguments in (("--use", "aes"), ("--use", "signing", "--as", "pem")):
        refused = keys(tmp_path, "export", "sender", "--private", "--out", out, *arguments)
        assert refused.complaint == "the private key is in a token, and does not leave it"
    assert not out.exists()
    request = keys(tmp_path, "export", "sender", "--use", "signing", "--as", "request").out
    assert request.startswith("-----BEGIN CERTIFICATE REQUEST-----")


@needs_softhsm
def test_the_next_key_is_made_in_the_token_and_the_one_before_is_set_aside(
    token: Token, tmp_path: Path
) -> None:
    keys(tmp_path, "import", "sender", token.uri("aes"))
    for make in (("--provider", "aes"), ()):
        refused = keys(tmp_path, "make", "sender", "--replace", "--bits", "1024", *make)
        assert refused.complaint == (
            "the key of sender for aes is key aes of token office: make the next one with the token's own tools, "
            f"then type mqproto keys import sender URI --use aes --replace --directory {tmp_path}"
        )
    assert keys(tmp_path, "make", "sender", "--bits", "1024").status == 0, "those that it lacks"
    assert keys(tmp_path, "import", "sender", token.uri("signing"), "--replace").status == 0
    [aside] = keys_path(tmp_path, "sender").glob("aes-until-*.pem")
    files = KeyFiles(keys_path(tmp_path, "sender"), "sender")
    assert [pair.bits for pair in (files.load("aes").pair, *files.aside("aes"))] == [1_040, 1_024]
    aside.write_bytes(in_file(parse_uri(token.uri("aes").replace("token=office", "token=gone"))))
    assert keys(tmp_path, "show", "sender").status == 0, "what is set aside is not shown"
    with pytest.raises(
        UsageError, match=rf"{aside}: token gone is not there; .*; if it is needed no more, remove"
    ):
        files.aside("aes")


@needs_softhsm
def test_a_file_that_pkcs11_provider_made_is_taken_and_another_key_in_its_place_is_not(
    tokens: Path, tmp_path: Path
) -> None:
    token = new_token(tokens, "provided")
    file = tmp_path / "key.pem"
    file.write_bytes(in_file(parse_uri(token.make("aes", 1))).partition(b"\n")[2])
    file.chmod(0o600)
    assert keys(tmp_path, "import", "sender", file).status == 0
    for kind in ("privkey", "pubkey"):
        token.tool("--delete-object", "--type", kind, "--id", "01")
    token.make("aes", 2)
    kept = keys_path(tmp_path, "sender") / "aes.pem"
    assert keys(tmp_path, "show", "sender").complaint == (
        f"{kept}: key aes of token provided is another one than was imported: import it anew"
    )
    damaged = kept.read_bytes().replace(b"MI", b"NI")
    kept.write_bytes(damaged)
    assert "its PKCS#11 PROVIDER URI is damaged" in keys(tmp_path, "show", "sender").complaint


@needs_softhsm
def test_a_certificate_is_the_one_that_is_named_or_lies_beside_the_key(tokens: Path, tmp_path: Path) -> None:
    token = new_token(tokens, "authority")
    uri = token.make("signing", 3)
    keys(tmp_path, "import", "sender", uri, "--use", "user-alice")
    exported = keys(tmp_path, "export", "sender", "--use", "user-alice").out.encode()
    der = tmp_path / "alice.der"
    der.write_bytes(Certificate.from_bytes(exported).der)
    token.tool("--write-object", der, "--type", "cert", "--id", "03")
    done = keys(tmp_path, "import", "destination", uri, "--use", "signing")
    assert "certificate of CN=alice" in done.out
    own = tmp_path / "own.pem"
    own.write_bytes(own_key(1_024).public.pem())
    refused = keys(tmp_path, "import", "intermediate", uri, "--use", "signing", "--certificate", own)
    assert refused.complaint.startswith(f"{own}: no certificate")
    late = keys(
        tmp_path, "import", "intermediate", uri.replace("signing", "none"), "--use", "signing", "--days", "1"
    )
    assert late.complaint.startswith("key none of token authority is not there; its private keys are signing")


def test_a_uri_with_a_pin_is_refused_and_repeated_nowhere(tmp_path: Path) -> None:
    uri = f"pkcs11:token=a;object=b?module-path=/c&pin-value={PIN}"
    refused = keys(tmp_path, "import", "sender", uri)
    assert refused.status == 2
    assert refused.complaint.startswith("pin-value would show the PIN to everybody who sees the URI")
    assert not keys_path(tmp_path, "sender").exists()


def test_without_the_library_it_is_said_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyfiles, "find_spec", lambda name: None)
    uri = "pkcs11:token=a;object=b?module-path=/c"
    refused = keys(tmp_path, "import", "sender", uri)
    assert refused.complaint == "a key in a PKCS #11 token takes pip install 'mqproto[pkcs11]'"
    files = KeyFiles(keys_path(tmp_path, "sender"), "sender")
    files.keep(Kept("aes", own_key(1_024), uri=parse_uri(uri)), "")
    shown = keys(tmp_path, "show", "sender").complaint
    assert shown == f"{files.path('aes')}: a key in a PKCS #11 token takes pip install 'mqproto[pkcs11]'"


@needs_softhsm
def test_a_damaged_seed_is_told(token: Token, tmp_path: Path) -> None:
    keys(tmp_path, "import", "sender", token.uri("aes"))
    seed = keys_path(tmp_path, "sender") / SEED
    assert len(seed.read_bytes()) == 32
    seed.write_bytes(b"short")
    assert (
        f"{seed}: it is damaged: remove it, and another is made" in keys(tmp_path, "show", "sender").complaint
    )


@needs_softhsm
def test_decode_says_that_such_a_key_is_in_a_token(token: Token, tmp_path: Path) -> None:
    keys(tmp_path, "import", "sender", token.uri("aes"))
    file = keys_path(tmp_path, "sender") / "aes.pem"
    says = f"{file}: its private key is in a PKCS #11 token; decode reads keys from files alone"
    for named in (file, file.parent):
        done = in_process("decode", "captures/samples/protected.pcapng", "--keys", named)
        assert (done.status, done.complaint) == (2, says)
