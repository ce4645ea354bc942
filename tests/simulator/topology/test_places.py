"""The options with which a further command finds the same nodes.

Every printed command works when it is pasted.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from mqproto.simulator.base.program.environment import DIRECTORY_VARIABLE, TOPOLOGY_VARIABLE
from mqproto.simulator.topology import load, places
from mqproto.simulator.topology.alone import node_alone
from tests.simulator.typed import in_process

DESK = 'name = "desk"\n[node.desk]\n[node.desk.queue.orders]\n[node.shop]\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "my desk.toml"
    file.write_text(DESK)
    return file


def test_a_file_goes_by_its_path_and_not_by_the_name_in_it(file: Path) -> None:
    topology = load(file)
    assert topology.name == "desk"
    assert places.again(topology) == f" --topology '{file}'"
    assert (
        places.run_command(topology, file.parent)
        == f"mqproto run --topology '{file}' --directory {file.parent}"
    )


def test_what_is_usual_need_not_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path) -> None:
    three = load("three-node")
    assert places.again(three, places.default_directory(three)) == places.again(three) == ""
    assert places.again(three, tmp_path) == f" --directory {tmp_path}"
    assert places.again(load("pair")) == " --topology pair"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    monkeypatch.setenv(TOPOLOGY_VARIABLE, str(file))
    assert places.again(load(file), tmp_path) == ""


def test_a_node_alone_is_started_by_its_name(tmp_path: Path) -> None:
    node_alone("shop", tmp_path, address="127.0.0.1:1801")
    topology = load("shop", tmp_path)
    assert places.again(topology, tmp_path) == f" --topology shop --directory {tmp_path}"
    assert (
        places.start_command(topology, "shop", tmp_path)
        == f"`mqproto node --name shop --directory {tmp_path}`"
    )


def test_of_several_nodes_one_is_started_or_all_unless_it_may_run_elsewhere(file: Path) -> None:
    topology = load(file)
    commands = (
        f"`mqproto node shop --topology '{file}' --directory {file.parent}`, or all nodes with "
        f"`mqproto run --topology '{file}' --directory {file.parent}`"
    )
    assert places.start_command(topology, "shop", file.parent) == commands
    [other] = set(topology.nodes) - {"shop"}
    places.store_path(file.parent, other).touch()
    unless = ", unless it runs on another machine"
    assert places.start_command(topology, "shop", file.parent) == commands + unless
    places.store_path(file.parent, "shop").touch()
    assert places.start_command(topology, "shop", file.parent) == commands


def test_where_a_run_has_the_nodes_it_starts_the_one_that_is_down(file: Path) -> None:
    path = places.prepared(places.run_socket(file.parent, "desk"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        try:
            command = places.start_command(load(file), "shop", file.parent)
        finally:
            path.unlink()
    assert command == f"`mqproto restart shop --topology '{file}' --directory {file.parent}`"


@pytest.mark.parametrize(
    "typed",
    [
        "send orders --body x",
        "receive orders",
        "explain orders",
        "queues",
        "queue list",
        "pause orders",
        "peers",
        "failed show one",
        "erase one",
        "keys show desk",
        "history one",
    ],
)
def test_each_command_that_is_printed_names_the_directory_and_the_topology(file: Path, typed: str) -> None:
    done = in_process(*typed.split(), "--topology", file, "--directory", file.parent)
    said = re.findall(r"mqproto [a-z][^`\n]*", done.err)
    assert said, done.err
    for command in said:
        assert f"'{file}'" in command
        assert f"--directory {file.parent}" in command
