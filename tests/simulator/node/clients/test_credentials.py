"""Whom the kernel names at the other end."""

from __future__ import annotations

import os
import pwd
import socket

import pytest

from mqproto.simulator.node.clients import credentials
from mqproto.simulator.node.clients.credentials import Credentials, credentials_of, name_of


def test_the_other_end_is_the_process_that_connected() -> None:
    one, other = socket.socketpair()
    with one, other:
        found = credentials_of(one)
    uid = os.getuid()
    assert found == Credentials(os.getpid(), uid, os.getgid(), pwd.getpwuid(uid).pw_name)
    assert found.facts() == found._asdict()


def test_a_user_without_a_name_has_a_number() -> None:
    assert name_of(2**32 - 2) == ""
    assert "user" not in Credentials(1, 2, 3, "").facts()


def test_where_the_system_does_not_tell_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        monkeypatch.setattr(credentials, "PEER_CREDENTIALS", 2**16 - 1)  # An option that no system has.
        assert credentials_of(one) is None
        monkeypatch.setattr(credentials, "PEER_CREDENTIALS", None)
        assert credentials_of(one) is None
