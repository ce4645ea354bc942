"""Queues with the properties of another queue."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mqproto.queues.protection import Protection
from mqproto.simulator.cli.cli import DONE, MISUSE, run_command
from mqproto.simulator.cli.likeness import like
from mqproto.simulator.client import Client
from mqproto.simulator.client.client import MadeOptions
from mqproto.simulator.topology import DeclaredQueue, parse
from mqproto.wire import Guid
from tests.simulator.running import running_with_client

SID: Final = "S-1-5-21-1004336348-1177238915-682003330-512"
MODEL: Final = DeclaredQueue(
    name="orders",
    identifier=17,
    transactional=True,
    public=Guid(b"p" * 16),
    quota_kb=64,
    journal=True,
    journal_quota_kb=32,
    strangers=True,
    protection=Protection(authenticated=True, privacy="body", weak_ciphers=("RC2-128",), senders=(SID,)),
)
TOPOLOGY: Final = f"""
name = "shop"
[node.shop]
[node.shop.queue.orders]
transactional = true
quota_kb = 64
journal = true
journal_quota_kb = 32
strangers = true
authenticated = true
privacy = "body"
weak_ciphers = ["RC2-128"]
senders = ["{SID}"]
[node.office]
[node.office.queue.plain]
"""


def test_all_of_it_is_as_in_the_model_but_what_names_that() -> None:
    made = like(MODEL, {})
    own = {field.name for field in fields(DeclaredQueue)} - {"name", "identifier", "public", "connector"}
    values = {name: getattr(MODEL, name) for name in own - {"protection"}}
    protection = {
        "authenticated": True,
        "privacy": "body",
        "weak_ciphers": ["RC2-128"],
        "senders": [SID],
    }
    assert made == values | protection


@pytest.mark.parametrize(
    "typed",
    [
        {"transactional": False},
        {"quota_kb": 0},
        {"strangers": False, "authenticated": False},
        {"senders": [], "weak_ciphers": []},
        {"public": b"q" * 16},
    ],
)
def test_what_is_typed_comes_first(typed: MadeOptions) -> None:
    assert like(MODEL, {"privacy": None, **typed}) == like(MODEL, {}) | typed


def test_without_a_journal_there_is_no_limit_of_one() -> None:
    assert "journal_quota_kb" not in like(MODEL, {"journal": False})


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Client]:
    (tmp_path / "shop.toml").write_text(TOPOLOGY)
    topology = parse(TOPOLOGY, str(tmp_path / "shop.toml")).with_free_ports()
    async with running_with_client(topology, "shop", tmp_path) as client:
        yield client


async def created(folder: Path, *typed: str) -> int:
    place = ("--topology", str(folder / "shop.toml"), "--directory", str(folder), "--json")
    return await trio.to_thread.run_sync(run_command, ["queue", "create", *typed, *place])


async def test_a_command_makes_it_at_the_node_of_the_model_without_its_messages(
    shop: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await created(tmp_path, "returns", "--like", "orders", "--no-journal", "--sender", "-") == DONE
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    queues = {queue.name: queue for queue in await shop.declared()}
    model, made = queues["orders"], queues["returns"]
    assert (made.transactional, made.quota_kb, made.strangers) == (True, 64, True)
    assert (made.journal, made.journal_quota_kb, made.protection.senders) == (False, None, ())
    assert (made.protection.privacy, made.protection.weak_ciphers) == ("body", ("RC2-128",))
    assert (said["identifier"], said["name"]) == (made.identifier, "returns")
    assert made.identifier != model.identifier


async def test_a_model_that_is_no_queue_of_people_is_refused_in_a_line(
    shop: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model, words in (
        ("nowhere", "nowhere"),
        (r"shop\system$;deadxact", r"--like shop\system$;deadxact: the system has made it"),
    ):
        assert await created(tmp_path, "returns", "--like", model) == MISUSE
        complaint = capsys.readouterr().err
        assert words in complaint
        assert complaint.count("\n") == 1
