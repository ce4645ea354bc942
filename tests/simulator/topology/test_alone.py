"""A single node: its first start makes a file with one [node], and everybody finds it by the node's name."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.topology import TopologyError, load, parse
from mqproto.simulator.topology.alone import node_alone
from mqproto.simulator.topology.places import Place, default_directory
from mqproto.simulator.topology.views import as_toml
from mqproto.wire.guid import guid_text

ALONE = """
[node]
name = "shop"
guid = "6F9619FF-8B86-D011-B42D-00C04FC964FF"
address = "127.0.0.5"
[node.queue.orders]
transactional = true
[node.settings]
window_size = 16
[settings]
order_ack_timeout_ms = 50
[strangers]
call = ["10.0.0.7"]
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which nodes keep their state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "mqproto"


def test_a_file_of_one_node_is_a_topology_of_one_node() -> None:
    topology = parse(ALONE, "shop.toml")
    [node] = topology.nodes.values()
    assert (topology.name, node.name, node.address) == ("shop", "shop", ("127.0.0.5", 1801))
    assert (node.queues["orders"].identifier, node.queues["orders"].transactional) == (16, True)
    assert (node.settings.window_size, node.settings.order_ack_timeout_ms) == (16, 50)
    assert topology.strangers.call == ("10.0.0.7",)
    assert parse(as_toml(topology), "any.toml") == topology


def test_a_node_of_a_topology_may_be_called_name() -> None:
    assert [*parse("[node.name]\n[node.other]", "any.toml").nodes] == ["name", "other"]


def test_a_guid_is_proposed_where_there_is_none_and_not_made_of_the_name() -> None:
    text = ALONE.replace('guid = "6F9619FF-8B86-D011-B42D-00C04FC964FF"\n', "")
    with pytest.raises(
        TopologyError, match=r"^shop.toml: node: a node alone has a GUID that no other has; add guid = "
    ) as no:
        parse(text, "shop.toml")
    line = str(no.value).partition("add ")[2]
    assert guid_text(parse(text.replace("[node]", f"[node]\n{line}"), "shop.toml").nodes["shop"].guid) in line


def test_the_first_start_makes_the_file_and_later_ones_read_it(state: Path) -> None:
    made, folder = node_alone("shop", address="127.0.0.5:1833")
    assert folder == state / "shop" == default_directory(made)
    assert stat.S_IMODE((folder / "shop.toml").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["shop.toml"], "nothing else is left"
    again, _ = node_alone("shop")
    assert again == made == load("shop") == Place.of("shop", None).topology
    assert made.nodes["shop"].address == ("127.0.0.5", 1833)
    other, _ = node_alone("other")
    assert other.nodes["other"].address == ("127.0.0.1", 1801)
    assert other.nodes["other"].guid != made.nodes["shop"].guid


def test_a_node_alone_may_be_in_any_folder(tmp_path: Path) -> None:
    made, folder = node_alone("shop", tmp_path / "here")
    assert folder == tmp_path / "here"
    assert Place.of("shop", folder) == Place(made, folder)
    with pytest.raises(
        TopologyError, match=r"no topology is called 'shop'; .* `mqproto node --name shop` makes a node"
    ):
        load("shop")


@pytest.mark.parametrize(
    ("name", "address", "reason"),
    [
        (
            "shop",
            "127.0.0.6",
            r"^shop listens on 127.0.0.1:1801, as .*shop.toml says: leave --address out, or change",
        ),
        ("shop", "127.0.0.1:0", "has no port from 1 to 65535"),
        ("the shop", None, "a node's name has up to 63 letters, digits, - and _"),
        ("three-node", None, "a topology that comes with mqproto has this name; choose another"),
        ("taken", None, r"taken.toml is of a, b, and not of taken alone; name a directory"),
        ("file", None, r"mqproto/file cannot be made \(.*\): name another directory"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(state: Path, name: str, address: str | None, reason: str) -> None:
    node_alone("shop")
    (state / "taken").mkdir()
    (state / "taken" / "taken.toml").write_text("[node.a]\n[node.b]")
    (state / "file").write_text("")
    with pytest.raises(UsageError, match=reason):
        node_alone(name, address=address)
