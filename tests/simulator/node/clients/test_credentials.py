"""The user at the other end of a socket, as the kernel names it."""

from __future__ import annotations

import os
import pwd
import socket

import pytest

from mqproto.simulator.node.clients import deeds
from mqproto.simulator.node.clients.deeds import (
    Credentials,
    credentials_of,
    name_of,
    program_in,
    program_of,
)


def test_the_other_end_is_the_process_that_connected() -> None:
    one, other = socket.socketpair()
    with one, other:
        found = credentials_of(one)
    uid = os.getuid()
    assert found == Credentials(os.getpid(), uid, os.getgid(), pwd.getpwuid(uid).pw_name)
    assert found.facts() == found._asdict()


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (r"/venv/bin/python /venv/bin/mqproto trigger far\orders --url u", r"mqproto trigger far\orders"),
        ("/venv/bin/mqproto gateway near", "mqproto gateway near"),
        ("mqproto trigger --name secret", "mqproto trigger"),
        ("python3 -m mqproto.simulator.cli.cli receive orders", "mqproto receive orders"),
        ("python3 -X dev shop.py secret", "dev"),
        ("python3 -u shop.py secret", "shop.py"),
        ("python3 -c secret", "python3"),
        ("python3", "python3"),
        ("/usr/bin/java -jar secret.jar", "java"),
        ("", ""),
    ],
)
def test_a_program_is_named_and_nothing_that_may_be_secret(command: str, program: str) -> None:
    assert program_in("".join(f"{word}\0" for word in command.split(" ")).encode()) == program


def test_a_process_that_is_gone_has_no_program() -> None:
    assert program_of(os.getpid())
    assert program_of(2**30) == ""


def test_a_user_without_a_name_has_a_number() -> None:
    assert name_of(2**32 - 2) == ""
    assert "user" not in Credentials(1, 2, 3, "").facts()


def test_where_the_system_does_not_tell_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        monkeypatch.setattr(deeds, "PEER_CREDENTIALS", 2**16 - 1)  # An option that no system has.
        assert credentials_of(one) is None
        monkeypatch.setattr(deeds, "PEER_CREDENTIALS", None)
        assert credentials_of(one) is None
