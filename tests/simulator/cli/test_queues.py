"""`mqproto node --name` and `mqproto queue`, with nodes in separate processes that are killed."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE
from mqproto.simulator.topology.alone import node_alone
from mqproto.simulator.topology.ports import reserved_address
from mqproto.wire.guid import guid_text
from tests.simulator.running import own_host
from tests.simulator.typed import COMMAND, Done, in_process, mqproto
from tests.test_readme import console_blocks

OFFICE_HOST: Final = own_host(44)
"""A loopback address that no other test uses, because a direct format name has no port."""


class Shop:
    """A single node, and the commands that are given to it."""

    def __init__(self, folder: Path, name: str = "shop") -> None:
        self.name = name
        self.folder = folder
        self.address = "{}:{}".format(*reserved_address())
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = [*COMMAND, "node", "--name", self.name, "--directory", str(self.folder), *options]
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "stderr").open("ab") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"ready {self.name}\n".encode(), self.log

    def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        with self.process:
            self.process.send_signal(number)
        self.process = None

    @property
    def log(self) -> str:
        return (self.folder / "stderr").read_text()

    def __call__(self, *arguments: str) -> Done:
        return in_process(*arguments, "--topology", self.name, "--directory", self.folder)

    def queues(self) -> dict[str, tuple[bool, int | None]]:
        """Return whether each queue is transactional, and its quota, keyed by the queue's name."""
        listed = json.loads(self("queue", "list", "--json").out)
        return {queue["name"]: (queue["transactional"], queue["quota_kb"]) for queue in listed}


@contextmanager
def a_shop(folder: Path, name: str = "shop", *options: str) -> Iterator[Shop]:
    shop = Shop(folder, name)
    shop.start("--address", shop.address, *options)
    try:
        yield shop
    finally:
        if shop.process is not None:
            shop.end(signal.SIGKILL)


@pytest.mark.long
def test_what_was_answered_is_there_after_a_kill_whatever_was_done(tmp_path: Path) -> None:
    with a_shop(tmp_path, "shop", "--queue", "orders", "--queue", "replies:transactional") as shop:
        expected: dict[str, tuple[bool, int | None]] = {"orders": (False, None), "replies": (True, None)}
        assert shop.queues() == expected
        steps: list[tuple[tuple[str, ...], dict[str, tuple[bool, int | None] | None]]] = [
            (("create", r".\private$\bills", "--transactional", "--quota-kb", "9"), {"bills": (True, 9)}),
            (("set", r"shop\private$\bills", "--quota-kb", "0", "--journal"), {"bills": (True, None)}),
            (("create", r"shop\notes", "--strangers", "--public", "new"), {"notes": (False, None)}),
            (("delete", "orders"), {"orders": None}),
            (("create", "Orders", "--transactional"), {"Orders": (True, None)}),
        ]
        for typed, changes in steps:
            done = shop("queue", *typed)
            shop.end(signal.SIGKILL)
            assert done.status == DONE, done.err
            expected |= {name: what for name, what in changes.items() if what is not None}
            expected = {name: what for name, what in expected.items() if changes.get(name, what) is not None}
            shop.start()
            assert shop.queues() == expected
        assert shop("send", "bills", "--body", "hello").status == DONE
        shop.end(signal.SIGKILL)
        shop.start("--queue", "bills:transactional", "--address", shop.address)
        assert shop("receive", r"shop\private$\bills").out == "hello\n"
        assert shop("receive", "bills;journal").out == "hello\n"


@pytest.mark.long
def test_two_nodes_alone_exchange_an_order_and_an_answer_by_what_is_typed(tmp_path: Path) -> None:
    with (
        a_shop(tmp_path, "shop", "--queue", "replies:transactional:strangers", "--queue", "notices") as shop,
        a_shop(
            tmp_path / "office",
            "office",
            *("--address", f"{OFFICE_HOST}:1801", "--queue", "orders:transactional:strangers"),
        ) as office,
    ):
        order = (rf"DIRECT=TCP:{OFFICE_HOST}\private$\orders", "--transactional", "--body", "an order")
        answers = ("--response-queue", "replies", "--admin-queue", "notices")
        assert shop("send", *order, *answers).status == DONE
        came = json.loads(office("receive", "orders", "--json", "--timeout", "30").out)
        assert came["body"] == "an order"
        notices = shop("receive", "notices", "--count", "2", "--json", "--timeout", "30").out.splitlines()
        assert [json.loads(notice)["class"] for notice in notices] == ["ACK_REACH_QUEUE", "ACK_RECEIVE"]
        assert office("send", came["response_queue"], "--transactional", "--body", "an answer").status == DONE
        assert shop("receive", "replies", "--timeout", "30").out == "an answer\n"


def test_a_client_of_a_node_alone_that_is_down_proposes_what_starts_it(tmp_path: Path) -> None:
    node_alone("shop", tmp_path)
    refused = in_process("receive", "notes", "--topology", "shop", "--directory", tmp_path)
    assert f"`mqproto node --name shop --directory {tmp_path}`" in refused.err


@pytest.mark.long
def test_a_file_that_has_changed_since_wins_and_the_log_says_so(tmp_path: Path) -> None:
    with a_shop(tmp_path) as shop:
        shop("queue", "create", "orders", "--transactional")
        shop("queue", "create", "notes")
        shop.end(signal.SIGTERM)
        with (tmp_path / "shop.toml").open("a") as file:
            file.write("[node.queue.orders]\nquota_kb = 5\n")
        shop.start()
        assert shop.queues() == {"orders": (False, 5), "notes": (False, None)}
        [line] = [line for line in shop.log.splitlines() if "declared-otherwise" in line]
        said = json.loads(line)
        assert (said["queue"], said["was"], said["is"]) == (
            "orders",
            "transactional",
            "not transactional, 5,120 bytes",
        )
        shop("queue", "set", "orders", "--quota-kb", "6")
        shop.end(signal.SIGKILL)
        shop.start()
        assert shop.queues()["orders"] == (False, 6)
        assert shop.log.count("declared-otherwise") == 1


@pytest.mark.long
def test_two_nodes_alone_know_nothing_of_each_other(tmp_path: Path) -> None:
    with a_shop(tmp_path / "a", "shop", "--queue", "orders") as shop, a_shop(tmp_path / "b", "bank") as bank:
        assert (shop.queues(), bank.queues()) == ({"orders": (False, None)}, {})
        assert bank("queue", "create", "orders", "--transactional").status == DONE
        assert shop("send", "orders", "--body", "to the shop").status == DONE
        assert bank("send", "orders", "--body", "to the bank").status == DONE
        assert shop("receive", "orders").out == "to the shop\n"
        assert bank("receive", "orders").out == "to the bank\n"
        assert "not-1801" in shop.log


@pytest.mark.long
def test_what_the_readme_shows_of_a_node_alone_is_what_the_commands_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    topology, _ = node_alone("shop", address="{}:{}".format(*reserved_address()))
    guid = guid_text(topology.nodes["shop"].guid)
    [[first, *typed]] = console_blocks("run-one-node")
    command = [*COMMAND, *shlex.split(first.text.removesuffix(" &"))[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as node:
        try:
            assert node.stdout is not None
            assert node.stdout.readline() == b"ready shop\n"
            for command_typed in typed:
                done = in_process(*shlex.split(command_typed.text)[1:])
                printed = done.out.replace(guid, "963EBEB9-8A2F-504A-9728-78C61096BF80")
                assert done.status == DONE, done.err
                assert number_of_a_message(printed) == number_of_a_message(f"{command_typed.output}\n")
        finally:
            node.terminate()


def number_of_a_message(text: str) -> str:
    """Return the text with each message's number replaced; these numbers may begin at any value."""
    return re.sub(r"(?m)^([0-9A-F-]{36}\\)[0-9]+$", r"\1N", text)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["thename/ofmyservice", "a=b", "a@b", "a:b", "two words", "shop/orders", "x;journal"]
)
def test_whatever_name_a_queue_has_each_command_knows_it(tmp_path: Path, name: str) -> None:
    """[MS-MQMQ] 2.1.1; WCF's services have slashes in their names."""
    with a_shop(tmp_path, "shop") as shop:
        name, _, journal = name.partition(";")
        assert shop("queue", "create", name, *(["--journal"] if journal else [])).status == DONE
        for called in (
            name,
            rf".\{name}",
            rf".\private$\{name}",
            rf"DIRECT=OS:.\private$\{name}",
            rf"shop\{name}",
        ):
            assert shop("send", called, "--body", called).status == DONE
            assert shop("peek", called).out == f"{called}\n"
            assert rf"shop\{name}: 1 message" in shop("explain", called).out
            assert shop("receive", called).out == f"{called}\n"
            if journal:
                assert shop("receive", f"{called};journal").out == f"{called}\n"
        assert shop("queue", "delete", name).status == DONE


REFUSED: Final = r"""
net.msmq://10.0.0.7/private/orders msmq://bank/orders orders@10.0.0.7 orders@bank
10.0.0.7/private$/orders 10.0.0.7\private$\orders bank\\private$\\orders
fe80::1\private$\orders bank\orders private$\ordrs OS:bank\orders DIRECT=bank\orders
DIRECT=OS:fe80::1\orders DIRECT=TCP:bank\orders ordrs .\ordrs shpo\orders
"""


@pytest.mark.long
@pytest.mark.parametrize("name", REFUSED.split())
def test_what_a_refusal_advises_is_not_refused(tmp_path: Path, name: str) -> None:
    with a_shop(tmp_path, "shop", "--queue", "orders") as shop:
        done = shop("send", name, "--body", "x")
        assert done.status == MISUSE
        for _ in range(2):
            if done.status == DONE:
                break
            if advised := re.search(r"write (\S+)$", done.complaint):
                name = advised[1]
            elif advised := re.search(r"no (node|queue) '(\S+)'; did you mean '(\S+)'\?$", done.complaint):
                name = name.replace(advised[2], advised[3])
            done = shop("send", name, "--body", "x")
        assert done.status == DONE, done.err


def test_what_an_acknowledgment_or_a_dead_letter_is_about_comes_before_what_it_carries(
    tmp_path: Path,
) -> None:
    with a_shop(tmp_path, "shop", "--queue", "orders:transactional", "--queue", "acks") as shop:
        asked = ["--admin-queue", "acks", "--dead-letter", "--time-to-be-received", "1"]
        number = shop("send", "orders", "--transactional", "--body", "approve order 17", *asked).out
        said = f"NACK_RECEIVE_TIMEOUT {number}approve order 17\n"
        assert shop("receive", "acks", "--count", "2").out == f"ACK_REACH_QUEUE {number}{said}"
        assert shop("peek", "deadxact").out == said


@pytest.mark.long
def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    with a_shop(tmp_path, "shop", "--queue", "orders:transactional") as shop:
        for typed, reason in (
            ("create ORDERS", "orders has this name already: choose another, or delete orders first"),
            ("create 'two,words'", "two,words: a path name is computer"),
            ("create ' word'", " word: a queue name neither begins nor ends with a space"),
            ("create 'system$;deadxact'", "the system's queues cannot be made"),
            ("create bank\\\\orders", "shop has no node 'bank'"),
            (f"create q --quota-kb {2**32}", "must be less than or equal to 4294967295"),
            (f"set orders --journal-quota-kb {10**20}", "must be less than or equal to 4294967295"),
            ("create q --journal-quota-kb 5", "journal_quota_kb bounds no journal"),
            ("set ordres --journal", "did you mean 'orders'?"),
            ("delete ordres", "did you mean 'orders'?"),
            ("delete shop\\\\ordres", "did you mean 'orders'?"),
            ("delete deadxact", "belongs to the system and cannot be deleted; purge it"),
        ):
            done = shop("queue", *shlex.split(typed))
            assert done.status == MISUSE
            assert reason in done.complaint
        assert shop.queues() == {"orders": (True, None)}
        shop.end(signal.SIGTERM)
        again = mqproto("node", "--name", "shop", "-d", tmp_path, "--queue", "orders")
        assert again.status == MISUSE
        assert "--queue orders: the queue is there and transactional, which cannot be changed" in again.err
    for command in ("create q", "list"):
        done = shop("queue", *command.split())
        assert done.status == FINDING
        assert re.search("start (it|them)", done.complaint)


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("", "three-node has several nodes: name one of sender, intermediate, destination"),
        ("sender --name shop", "--name is that of a node alone: leave NODE and --topology out"),
        ("--name shop -t three-node", "--name is that of a node alone: leave NODE and --topology out"),
        ("sender --address 127.0.0.9", "--address is for a node alone, with --name"),
        (
            "--name shop --queue orders:journal",
            "--queue 'orders:journal': write a queue's name, and behind it :transactional, :strangers or both",
        ),
        (
            "--name shop --queue 'two+words' --address 127.0.0.1:9",
            "two+words: a queue name cannot contain '+'",
        ),
    ],
)
def test_what_a_node_cannot_be_started_with_is_one_line(tmp_path: Path, typed: str, reason: str) -> None:
    done = in_process("node", *shlex.split(typed), "-d", tmp_path)
    assert done.status == MISUSE
    assert reason in done.err.splitlines()[-1]
    assert not [*tmp_path.iterdir()]
