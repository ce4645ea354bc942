"""One token for all tests here, as to make keys in it takes time; those that spoil theirs make another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator.security.cryptoki.softhsm import Token, begin, forget, new_token


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with SoftHSM's tokens."""
    folder = tmp_path_factory.mktemp("softhsm")
    with pytest.MonkeyPatch.context() as monkeypatch:
        begin(folder, monkeypatch)
        yield folder
        forget()


@pytest.fixture(scope="session")
def token(tokens: Path) -> Token:
    """With a key for key exchange, one for signatures, and one of an elliptic curve."""
    token = new_token(tokens, "office")
    for number, (key, kind) in enumerate(
        {"aes": "rsa:1024", "signing": "rsa:1040", "curve": "EC:prime256v1"}.items(), 1
    ):
        token.make(key, number, kind)
    return token
