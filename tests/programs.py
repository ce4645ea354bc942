"""Third-party programs that some tests need, and that pip cannot install."""

from __future__ import annotations

import shutil
from typing import Final

import pytest

PACKAGES: Final = {
    "dumpcap": "wireshark-common",
    "stunnel": "stunnel4",
    "promtool": "prometheus",
    "systemd-nspawn": "systemd-container",
}
"""The names of Debian packages, keyed by program, where the two names differ."""


def needs(program: str) -> pytest.MarkDecorator:
    """Skip a test if a program is not installed."""
    reason = f"{program} is not installed: apt-get install {PACKAGES.get(program, program)}"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)
