"""How a newcomer gets a message from one machine to another: docs/how-to/two-machines.md.

[MS-MQQB] 2.1

Both machines are network namespaces. Root may make these, and on most systems every user may.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import ROOT
from tests.conftest import FORBIDDEN

WAYS: Final = (["unshare", "-mn"], ["unshare", "-rmn"])
PATH: Final = f"{os.environ['PATH']}:/usr/sbin:/sbin"
"""A PATH with administrators' programs, which Debian keeps off the PATH of other users."""
NEEDED: Final = {"ip": "iproute2", "nft": "nftables"}


def way_in() -> list[str]:
    """Return the first way in which this machine lets us have a separate network with a firewall."""
    for program, package in NEEDED.items():
        if shutil.which(program, path=PATH) is None:
            pytest.skip(f"{program} is not installed: apt-get install {package}")
    trial = "ip link add a1 type veth peer name b1 && nft add table inet filter && mount --bind / /mnt"
    for way in WAYS:
        if (
            subprocess.run(
                [*way, "sh", "-c", trial], capture_output=True, check=False, env={"PATH": PATH}
            ).returncode
            == 0
        ):
            return way
    pytest.skip(f"{FORBIDDEN}network namespaces: run as root, or allow user namespaces")


@pytest.mark.long
def test_what_the_readme_has_people_type_at_two_machines_brings_a_message_an_answer_and_acknowledgments(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [*way_in(), sys.executable, "-m", "tests.simulator.node.twomachines", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": PATH, "PYTHONPATH": str(ROOT)},
    )
    logs = "".join(path.read_text() for path in tmp_path.glob("*/*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
