"""Our units under a systemd that is process 1: it boots in a container from this machine's files, and leaves nothing
behind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, Final

import pytest

from tests.conformance import ROOT
from tests.programs import needs
from tests.simulator.cli.service.booted import HANGS_S, NODE, UNITS

pytestmark = needs("systemd-nspawn")

LIMIT_S: Final = 200
PLACES: Final = "LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/source:/opt/packages"
PYTHON: Final = f"/opt/python/bin/python{sysconfig.get_python_version()}"
PROGRAM: Final = f"""\
#!/bin/sh
{PLACES} exec {PYTHON} -m mqproto.simulator.cli.cli "$@"
"""
"""The program `mqproto`, at a path that units can see.

They cannot see home directories or /tmp, where a clone and its Python may be.
"""
TRIAL: Final = f"""\
[Unit]
SuccessAction=exit-force
FailureAction=exit-force

[Service]
Type=oneshot
Environment=PATH=/opt/mqproto:/usr/sbin:/usr/bin:/sbin:/bin {PLACES}
ExecStartPre=/bin/touch /opt/said/booted
ExecStart={PYTHON} -m tests.simulator.cli.service.booted /opt/said/found.json
"""
BOOT: Final = """\
set -e
mount -t tmpfs -o mode=755 memory "$1"
mkdir "$1/upper" "$1/work" "$1/whole"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/whole"
rm -rf "$1/whole/opt/mqproto" "$1/whole/etc/mqproto" "$1/whole/etc/systemd/system/mqproto"*
cp "$2/trial.service" "$1/whole/etc/systemd/system/"
mkdir -p "$1/whole/opt/mqproto"
cp "$2/mqproto" "$1/whole/opt/mqproto/"
shift 2
exec "$@" </dev/null
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of the trial."""
    folder = tmp_path_factory.mktemp("booted")
    memory, given, said = (folder / name for name in ("memory", "given", "said"))
    for each in (memory, given, said):
        each.mkdir()
    program = given / "mqproto"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (given / "trial.service").write_text(TRIAL)
    shared = {
        "/opt/source": str(ROOT),
        "/opt/packages": sysconfig.get_path("purelib"),
        "/opt/python": sys.base_prefix,
    }
    boot = [
        *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--console=pipe"),
        *(f"--bind-ro={path}:{where}" for where, path in shared.items()),
        *(
            f"--bind={said}:/opt/said",
            f"--directory={memory / 'whole'}",
            "--boot",
            "--",
            "--unit=trial.service",
        ),
    ]
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        pytest.skip("this machine allows no systemd in a container: that takes root, or sudo")
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    done = subprocess.run(
        [*as_root, "unshare", "--mount", "sh", "-c", BOOT, "sh", str(memory), str(given), *boot],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if not (said / "booted").exists():
        reason = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()[-1]
        pytest.skip(f"this machine allows no systemd in a container: {reason}")
    result = said / "found.json"
    assert result.exists(), done.stdout + done.stderr
    known: dict[str, Any] = json.loads(result.read_text())
    assert "failed" not in known, known["failed"] + known["journal"]
    return known


@pytest.mark.long
def test_a_request_is_a_call_of_the_service_also_after_reloads_and_failures(found: dict[str, Any]) -> None:
    assert found["came through"] == [True, True, True]


def test_who_operates_it_types_what_the_unit_says(found: dict[str, Any]) -> None:
    assert r"shop\orders" in found["operator sees"]


def test_a_unit_writes_its_store_and_sees_nothing_else_of_the_machine(found: dict[str, Any]) -> None:
    assert [what for what, can in found["walls"].items() if can] == ["write its store"]


def test_a_reload_begins_again_in_the_same_process(found: dict[str, Any]) -> None:
    for unit in UNITS:
        states, is_the_same, restarts = found["reloads"][unit]
        assert set(states) <= {"running", "reload"}, f"{unit}: systemd waits for the end of what goes on"
        assert (is_the_same, restarts) == (True, "0")


def test_a_node_that_hangs_is_killed_and_started_again(found: dict[str, Any]) -> None:
    assert found["hung"] == ["watchdog", "active"], f"{NODE} said nothing for {HANGS_S} s"


def test_all_end_in_order_when_they_are_stopped(found: dict[str, Any]) -> None:
    assert found["stopped"] == {unit: ["success", "0"] for unit in UNITS}
