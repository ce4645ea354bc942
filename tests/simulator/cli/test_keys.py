"""`mqproto keys` as a person types it, on real files: its output and its refusals; no secret is shown."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqproto.security import Certificate, KeyPair, PublicKey, self_signed
from tests.programs import needs
from tests.security.keys import own_key, secret_forms
from tests.simulator.typed import Done, in_process, mqproto

SHORT = ("--bits", "512")


def keys(folder: Path, *arguments: str | Path) -> Done:
    return in_process("keys", *arguments, "--directory", folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of stores in which the node `sender` has keys; tests that change the stores take a copy."""
    folder = tmp_path_factory.mktemp("stores")
    done = keys(folder, "make", "sender", *SHORT)
    assert (done.status, done.err) == (0, "")
    return folder


@pytest.fixture
def stores(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "stores")


def file_modes(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        yield path.name, f"{stat.S_IMODE(path.stat().st_mode):o}"


def test_keys_are_made_for_their_owner_alone(made: Path) -> None:
    assert dict(file_modes(made)) == {
        "sender.keys": "700",
        "aes.pem": "600",
        "enhanced.pem": "600",
        "signing.pem": "600",
        "sender.public": "755",
        "aes.blob": "644",
        "enhanced.blob": "644",
        "signing.cer": "644",
    }
    signing = (made / "sender.keys" / "signing.pem").read_bytes()
    certificate = Certificate.from_bytes(signing)
    assert certificate.key == KeyPair.from_bytes(signing).public
    assert certificate.subject == "CN=sender"


def test_they_are_shown_with_their_fingerprints_and_as_json(made: Path) -> None:
    done = keys(made, "show", "sender")
    value = json.loads(keys(made, "show", "sender", "--json").out)
    assert done.status == 0
    assert [line.split(", ")[0] for line in done.out.splitlines()] == [
        "sender: aes",
        "sender: enhanced",
        "sender: signing",
    ]
    for line, key in zip(done.out.splitlines(), value["keys"], strict=True):
        assert f", 512 bits, which anybody can break, {key['fingerprint']}" in line
        assert PublicKey.from_bytes(bytes.fromhex(key["blob"])).fingerprint == key["fingerprint"]
    assert value["keys"][2]["certificate"]["subject"] == "CN=sender"


def test_a_node_without_keys_says_what_to_type(tmp_path: Path) -> None:
    done = keys(tmp_path, "show", "sender")
    assert done.status == 1
    assert done.complaint == f"sender has no keys: mqproto keys make sender --directory {tmp_path}"
    assert "has no key for base: mqproto keys make sender --provider base" in (
        keys(tmp_path, "export", "sender", "--use", "base").complaint
    )


@pytest.mark.parametrize("form", ["blob", "pem"])
def test_what_is_exported_is_imported_elsewhere(stores: Path, tmp_path: Path, form: str) -> None:
    file = tmp_path / "private"
    done = keys(stores, "export", "sender", "--private", "--as", form, "--out", file)
    assert (done.status, done.out) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert keys(stores, "import", "destination", file).status == 0
    [ours, theirs] = [keys(stores, "export", node, "--as", "pem").out for node in ("sender", "destination")]
    assert ours == theirs
    assert keys(stores, "export", "sender", "--as", "blob").out.startswith("0602000000a4000052534131")


def test_a_key_that_is_replaced_is_set_aside_under_its_date(stores: Path) -> None:
    before = (stores / "sender.keys" / "aes.pem").read_bytes()
    done = keys(stores, "make", "sender", "--replace", "--provider", "aes", *SHORT)
    [aside] = (stores / "sender.keys").glob("aes-until-*.pem")
    assert f"set aside: {aside}\n" in done.out
    assert aside.read_bytes() == before != (stores / "sender.keys" / "aes.pem").read_bytes()
    assert {mode for _, mode in file_modes(stores / "sender.keys")} == {"600"}
    assert not [*(stores / "sender.keys").glob("*.new")]
    assert keys(stores, "show", "sender").out.count("sender: ") == 3, "what is set aside is not in use"


def test_a_certificate_comes_with_its_key_from_elsewhere(stores: Path, tmp_path: Path) -> None:
    own, other = own_key(512), own_key(768)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    key.write_bytes(own.pem())
    key.chmod(0o600)
    certificate.write_bytes(self_signed(own, "a user", 1_700_000_000, 365).pem())
    arguments = ("import", "destination", key, "--use", "signing", "--certificate", certificate)
    assert "certificate of CN=a user until 2024-11-13" in keys(stores, *arguments).out
    late = keys(stores, "show", "destination")
    assert late.status == 1
    assert "the certificate of CN=a user is valid from 2023-11-14 to 2024-11-13" in late.complaint
    exported = keys(stores, "export", "destination", "--use", "signing").out
    assert exported.encode() == certificate.read_bytes()

    certificate.write_bytes(self_signed(other, "somebody", 1_700_000_000, 365).pem())
    refused = keys(stores, *arguments, "--replace")
    assert (refused.status, refused.complaint) == (
        2,
        f"{certificate}: it is not of this key: name the one that is",
    )


@needs("openssl")
def test_an_authority_signs_what_it_is_asked_for(stores: Path, tmp_path: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt"),
        *("-subj", "/CN=an authority"),
    )
    assert keys(stores, "make", "sender", "--user", "alice", "--bits", "1024").status == 0
    asked = keys(stores, "export", "sender", "--use", "user-alice", "--as", "request").out
    (tmp_path / "alice.csr").write_text(asked)
    signs = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
    openssl("x509", "-req", "-in", "alice.csr", "-out", "alice.crt", *signs)
    key = stores / "sender.keys" / "user-alice.pem"
    arguments = ("import", "sender", key, "--use", "user-alice", "--certificate", tmp_path / "alice.crt")
    done = keys(stores, *arguments, "--replace")
    assert (done.status, done.err) == (0, "")
    assert "user-alice, 1,024 bits" in done.out
    exported = keys(stores, "export", "sender", "--use", "user-alice").out
    assert (
        Certificate.from_bytes(exported.encode()).der
        == Certificate.from_bytes((tmp_path / "alice.crt").read_bytes()).der
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["make", "sender"], "sender has all of these keys: --replace makes new ones"),
        (["make", "nobody"], "three-node has no node 'nobody'"),
        (["make"], "three-node has several nodes: name one of"),
        (["make", "destination", "--provider", "des"], "'des' is not a provider: name base, enhanced, aes"),
        (["make", "destination", "--provider", "base", "--bits", "1024"], "takes keys of 512 bits alone"),
        (["make", "destination", "--bits", "100"], "a key of 100 bits: ask for 512 to 16,384"),
        (["export", "sender", "--use", "des"], "--use des: name base, enhanced, aes, signing"),
        (["export", "sender", "--as", "der"], "--as der: name blob, pem, certificate"),
        (["export", "sender", "--as", "certificate"], "only a key for signatures has a certificate"),
        (["export", "sender", "--private"], "a private key is written to no screen"),
        (["import", "sender", "/dev/null"], "sender has a key for aes: --replace sets it aside"),
        (["import", "sender", "./none", "--replace"], "none: No such file or directory: name a file"),
    ],
)
def test_misuse_is_told_in_one_line(stores: Path, arguments: list[str], says: str) -> None:
    done = keys(stores, *arguments)
    assert done.status == 2
    assert says in done.complaint


def test_a_key_that_others_can_read_is_taken_from_nowhere(stores: Path, tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(own_key(512).pem())
    file.chmod(0o644)
    assert f"{file}: others can read the key (mode 644): chmod 600 it" in (
        keys(stores, "import", "destination", file).complaint
    )
    kept = stores / "sender.keys" / "aes.pem"
    kept.chmod(0o640)
    for command in ("show", "export"):
        assert f"{kept}: others can read the key (mode 640): chmod 600 it" in (
            keys(stores, command, "sender").complaint
        )
    (stores / "sender.keys").chmod(0o755)
    refused = keys(stores, "make", "sender", "--provider", "base").complaint
    assert "sender.keys: others can enter it (mode 755): chmod 700 it" in refused


def test_a_file_that_is_damaged_is_named_and_no_file_is_overwritten(stores: Path, tmp_path: Path) -> None:
    kept = stores / "sender.keys" / "enhanced.pem"
    kept.write_bytes(kept.read_bytes()[:200])
    assert keys(stores, "show", "sender").complaint.startswith(f"{kept}: no private key: bring PEM")
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for arguments in (["--private"], ["--as", "pem"]):
        done = keys(stores, "export", "sender", *arguments, "--out", taken)
        assert done.complaint == f"{taken}: it is there already: name another file"
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("form", ["blob", "pem"])
def test_decode_shows_nobody_a_private_key(stores: Path, tmp_path: Path, form: str) -> None:
    file = tmp_path / "private"
    keys(stores, "export", "sender", "--private", "--as", form, "--out", file)
    pair = KeyPair.from_bytes(file.read_bytes())
    for done in (
        in_process("decode", file),
        in_process("decode", "-", stdin=file.read_bytes().hex().encode()),
    ):
        assert not [part for part in secret_forms(pair) if part in (done.out + done.err).encode()]
    if form == "blob":
        assert done.complaint.startswith("a private key is shown to nobody: mqproto keys import NODE FILE")


def test_no_output_has_a_secret(stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even tracebacks about a damaged key contain no secret."""
    folder = stores / "sender.keys"
    pairs = [KeyPair.from_bytes(path.read_bytes()) for path in folder.glob("*.pem")]
    hurt = tmp_path / "hurt"
    blob = bytearray(pairs[0].blob())
    blob[90] ^= 1
    hurt.write_bytes(blob)
    hurt.chmod(0o600)
    said = []
    for arguments in (
        ["show", "sender"],
        ["show", "sender", "--json"],
        *(["export", "sender", "--as", form] for form in ("blob", "pem")),
        ["export", "sender", "--use", "signing"],
        ["export", "sender", "--private", "--out", str(tmp_path / "private")],
        ["make", "sender", "--replace", "--json", *SHORT],
        ["import", "destination", str(tmp_path / "private"), "--json"],
        ["export", "sender", "--private"],
    ):
        done = keys(stores, *arguments)
        said.append(done.out.encode() + done.err.encode())
    monkeypatch.setenv("MQPROTO_DEBUG", "1")
    said.append(mqproto("keys", "import", "intermediate", hurt, "--directory", stores).err.encode())
    assert b"Traceback" in said[-1]
    leaks = [form for pair in pairs for form in secret_forms(pair) for text in said if form in text]
    assert not leaks
    assert secret_forms(pairs[0]) & {*pairs[0].pem().splitlines()}, "what is looked for would be found"


@needs("openssl")
def test_openssl_reads_what_is_kept(made: Path) -> None:
    for use in ("aes", "signing"):
        path = made / "sender.keys" / f"{use}.pem"
        shown = subprocess.run(
            ["openssl", "pkey", "-in", path, "-noout", "-text"], capture_output=True, text=True, check=True
        )
        assert "Private-Key: (512 bit, 2 primes)" in shown.stdout


def test_without_the_extra_it_is_said_which_brings_it(tmp_path: Path) -> None:
    (tmp_path / "cryptography.py").write_text("raise ModuleNotFoundError(name='cryptography')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mqproto.simulator.cli.cli",
            "keys",
            "make",
            "sender",
            "--directory",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "mqproto: cryptography is not installed: pip install 'mqproto[security]'\n",
    )
