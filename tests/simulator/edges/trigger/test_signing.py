"""Standard Webhooks signatures: a published example, and those that reach a consumer."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.edges.trigger.access import Access
from mqproto.simulator.edges.trigger.callee import Call, HttpCallee, endpoint
from mqproto.simulator.edges.trigger.signing import secrets_in, signed
from tests.simulator.consumers import HttpConsumer, listening

PRINTED = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "secrets"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_signature_is_the_one_that_the_reference_libraries_test_with(tmp_path: Path) -> None:
    secrets = secrets_in(written(tmp_path, PRINTED + "\n"))
    found = signed(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert found == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_two_requests_have_one_signature_only_if_they_are_the_same() -> None:
    keys = ["a", "a.1", "a%2E1", "a%252E1", ".", "%2E", "%", "%25"]
    requests = list(itertools.product(keys, [1, 2], [b"", b"2.", b"2.x", b"1.2."]))
    signatures = {signed([bytes(24)], *each)["webhook-signature"] for each in requests}
    assert len(signatures) == len(requests)
    assert len({signed([bytes(24)], key, 1, b"")["webhook-id"] for key in keys}) == len(keys)


async def test_a_consumer_can_check_what_it_gets(tmp_path: Path) -> None:
    call = Call(message="GUID\\1", key="order.17", delivery_count=1, body=b"one")
    secrets = secrets_in(written(tmp_path, f"{base64.b64encode(bytes(range(64))).decode()}\n\n{PRINTED}\n"))
    consumer = HttpConsumer()
    async with listening(consumer), endpoint(consumer.url, Access(secrets=secrets)) as found:
        await HttpCallee(found).call(call)
    [seen] = consumer.seen
    said = f"{seen.headers['webhook-id']}.{seen.headers['webhook-timestamp']}.".encode() + seen.body
    wanted = [
        f"v1,{base64.b64encode(hmac.digest(secret, said, hashlib.sha256)).decode()}" for secret in secrets
    ]
    assert seen.headers["webhook-signature"].split(" ") == wanted
    assert seen.headers["webhook-id"] == "order%2E17"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 secrets; write 1 to 8"),
        (f"{PRINTED}\n" * 9, "9 secrets; write 1 to 8"),
        (f"{PRINTED}\nwhsec_c2hvcnQ=", "secret 2 is not the base64 of 24 to 64 bytes"),
        ("no base64!", "secret 1 is not the base64"),
        (base64.b64encode(bytes(65)).decode(), "secret 1 is not the base64"),
    ],
)
def test_what_is_no_secret_is_refused_in_one_line_without_it(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        secrets_in(written(tmp_path, text))
    assert "c2hvcnQ" not in str(refused.value)


def test_secrets_that_others_can_read_are_none(tmp_path: Path) -> None:
    path = written(tmp_path, PRINTED, 0o644)
    with pytest.raises(UsageError, match="others can read the secrets"):
        secrets_in(path)
