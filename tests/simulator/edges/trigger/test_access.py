"""How URLs are reached: over real TLS, with authorities, certificates and headers from files."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from mqproto.base.errors import UsageError
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.edges.trigger.access import Access, is_same_origin, own_headers, trusting
from mqproto.simulator.edges.trigger.callee import Answer, Call, HttpCallee, endpoint
from tests.simulator.certificates import issue
from tests.simulator.consumers import HttpConsumer, listening

CALL = Call(
    message="GUID\\1", key="order-17", delivery_count=1, body=b"one", forwarded={"ce-id": "1", "x-a": "no"}
)
OURS, THEIRS = trustme.CA(), trustme.CA()
"""Two certificate authorities: our own, and that of the callers."""


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    OURS.cert_pem.write_to_path(str(path))
    return path


def showing(host: str = "127.0.0.1", clients: trustme.CA | None = None) -> ssl.SSLContext:
    """Return a server's TLS settings."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    OURS.issue_cert(host).configure_cert(context)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        clients.configure_trust(context)
    return context


async def called(server: ssl.SSLContext, trusted: ssl.SSLContext | None) -> tuple[HttpConsumer, Answer]:
    consumer = HttpConsumer()
    async with listening(consumer, server), endpoint(consumer.url, Access(trusted=trusted)) as found:
        return consumer, await HttpCallee(found).call(CALL)


async def test_a_private_authority_is_trusted_if_it_is_named_and_only_then(ca: Path) -> None:
    consumer, answer = await called(showing(), trusting(ca, None, None))
    assert answer.attempt is Attempt.SUCCEEDED
    assert consumer.bodies == [b"one"]
    for trusted in (None, trusting(None, None, None)):
        consumer, answer = await called(showing(), trusted)
        assert answer.attempt is Attempt.FAILED_FOR_NOW
        assert "its certificate: unable to get local issuer certificate" in answer.reason
        assert not consumer.seen


async def test_a_certificate_of_another_host_is_refused(ca: Path) -> None:
    consumer, answer = await called(showing("127.0.0.2"), trusting(ca, None, None))
    assert "IP address mismatch" in answer.reason
    assert not consumer.seen


@pytest.mark.parametrize("trusted", [True, False])
async def test_ssl_cert_file_is_honoured(ca: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    _, answer = await called(showing(), trusting(None, None, None) if trusted else None)
    assert answer.attempt is Attempt.SUCCEEDED


async def test_a_client_certificate_is_shown_to_those_who_ask(ca: Path, tmp_path: Path) -> None:
    server = showing(clients=THEIRS)
    certificate, key = issue(tmp_path, "trigger", authority=THEIRS)
    consumer, answer = await called(server, trusting(ca, certificate, key))
    assert answer.attempt is Attempt.SUCCEEDED
    consumer, answer = await called(server, trusting(ca, None, None))
    assert answer.attempt is Attempt.FAILED_FOR_NOW
    # The server closes, and trio sends no alert.
    assert answer.reason == "the connection broke (the other end closed it without an answer)"
    assert not consumer.seen


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


async def test_headers_of_a_file_are_sent_and_no_message_changes_them(tmp_path: Path) -> None:
    file = secret(tmp_path / "headers.toml", 'Authorization = "Bearer 3f9c"\nX-A = "yes"\nCE-Id = "2"\n')
    consumer = HttpConsumer()
    async with listening(consumer), endpoint(consumer.url, Access(headers=own_headers(file))) as found:
        await HttpCallee(found).call(CALL)
    [seen] = consumer.seen
    assert (seen.headers["authorization"], seen.headers["x-a"], seen.headers["ce-id"]) == (
        "Bearer 3f9c",
        "yes",
        "2",
    )
    assert seen.headers["idempotency-key"] == "order-17"
    assert "3f9c" not in repr(Access(headers=own_headers(file)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Authorization: secret", "this is not TOML"),
        ("X-A = 7", "a header is not text"),
        ('[a]\nb = "secret"', "a header is not text"),
        ('X-A = ""', "X-A must have a value"),
        ('X-A = "secret\\n"', "X-A must have a value"),
        ('X-A = " secret"', "X-A must have a value"),
        ('X-A = "ä"', "X-A must have a value"),
        ('"X A" = "secret"', "'X A' is not a header's name"),
        ('Host = "secret"', "Host is the trigger's to say"),
        ('MQ-Label = "secret"', "MQ-Label is the trigger's to say"),
        ('Content-Encoding = "gzip"', "Content-Encoding is the trigger's to say"),
        ('X-A = "1"\nx-a = "2"', "a header is there twice"),
        (f'X-A = "{"x" * 16_384}"', "more than 16,384 characters"),
    ],
)
def test_what_is_no_file_of_headers_is_refused_in_one_line_without_its_secrets(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        own_headers(secret(tmp_path / "headers.toml", text))
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_secret_that_others_can_read_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"others can read the headers \(mode 640\); chmod 600 it"):
        own_headers(secret(tmp_path / "headers.toml", "", 0o640))
    with pytest.raises(UsageError, match="No such file or directory; name a file with the headers"):
        own_headers(tmp_path / "nothing")
    (tmp_path / "latin").touch(0o600)
    (tmp_path / "latin").write_bytes(b"\xe4")
    with pytest.raises(UsageError, match="this is not text in UTF-8"):
        own_headers(tmp_path / "latin")


def test_what_cannot_be_trusted_or_shown_is_said_in_one_line(
    ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = issue(tmp_path, "trigger")
    certificate.chmod(0o644)
    for authority, words in ((key, "there is no certificate in it"), (tmp_path / "no", "No such file")):
        with pytest.raises(UsageError, match=words):
            trusting(authority, None, None)
    for shown, theirs, words in (
        (certificate, None, "--certificate and --key belong together"),
        (None, key, "--certificate and --key belong together"),
        (key, key, "there is no certificate in it"),
        (certificate, certificate, "others can read the key"),
        (certificate, issue(tmp_path, "other")[1], "is not the key of"),
    ):
        with pytest.raises(UsageError, match=words):
            trusting(ca, shown, theirs)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="SSL_CERT_FILE: No such file"):
        trusting(None, None, None)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("https://a.example:443/resolve", True),
        ("https://a.example/", True),
        ("http://a.example/", False),
        ("https://a.example:444/", False),
        ("https://b.example/", False),
        ("https://a.example@b.example/", False),
    ],
)
def test_secrets_are_for_one_server(other: str, is_same: bool) -> None:
    assert is_same_origin("https://A.example/orders", other) is is_same
