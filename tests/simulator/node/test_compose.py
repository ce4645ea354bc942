"""The page for users of compose files: what its YAML says, and whether its services, run as processes, behave
accordingly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from tests.conformance import ROOT
from tests.simulator.node.compose import RUNTIME, SOCKETS, STATE, block, image_environment, read_yaml
from tests.simulator.node.test_twomachines import PATH, way_in


@pytest.mark.long
def test_what_the_page_has_people_run_beside_their_compose_file_brings_a_message_to_a_client_in_another_container() -> (
    None
):
    # Sockets have to have short names.
    with tempfile.TemporaryDirectory(prefix="mq") as folder:
        done = subprocess.run(
            [*way_in(), sys.executable, "-m", "tests.simulator.node.compose", folder],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": PATH, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_services_name_volumes_that_there_are_at_the_places_that_the_image_has() -> None:
    compose = read_yaml(block("yaml"))
    volumes = [volume.split(":") for service in compose["services"].values() for volume in service["volumes"]]
    assert {source for source, *_ in volumes} == set(compose["volumes"])
    assert {target for _, target, *_ in volumes} == {STATE, SOCKETS}
    environment = image_environment()
    assert (environment["MQPROTO_DIRECTORY"], environment["XDG_RUNTIME_DIR"]) == (STATE, RUNTIME)
    # A client looks for the socket by the place of the store: it has both volumes of its node.
    shop, worker = (
        {volume.removesuffix(":ro") for volume in compose["services"][name]["volumes"]}
        for name in ("shop", "worker")
    )
    assert shop == worker


def test_yaml_is_read_as_the_page_has_it() -> None:
    text = 'a:\n  b: c --d 0.0.0.0\n  e:\n    - f:g\n    - 1:1\n  h: ["i", "j"]\nk:\nl:\n'
    assert read_yaml(text) == {
        "a": {"b": "c --d 0.0.0.0", "e": ["f:g", "1:1"], "h": ["i", "j"]},
        "k": None,
        "l": None,
    }


@pytest.mark.parametrize(
    "text", ["a:\n b: c\n  d: e", "a: b\na: c", "a", "a:\n  - b\n  c: d", "  a: b\nc: d"]
)
def test_yaml_that_says_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"there twice|stands|indented|not a line"):
        read_yaml(text)
