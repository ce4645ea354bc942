"""Two queue managers that know nothing about each other: each is the only node of its topology, in a separate process.

A direct format name has no port, so they listen on port 1801 of addresses that no other test uses.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client, connect
from mqproto.simulator.client.explain import Explainer
from mqproto.simulator.node.control import RolledBack
from mqproto.simulator.topology import Topology, parse
from mqproto.simulator.topology.views import as_toml
from mqproto.wire.guid import guid_text
from tests.simulator.running import NodeProcess, own_host, running, until_sent
from tests.simulator.typed import Done, in_process

SHOP_HOST, OFFICE_HOST, ELSEWHERE, NOWHERE = map(own_host, (41, 42, 43, 49))
SETTINGS: Final = """
[settings]
order_ack_timeout_ms = 50
try_connect_interval_ms = 50
resend_timeouts_short_s = 0.25
"""
ORDERS: Final = rf"DIRECT=TCP:{OFFICE_HOST}\private$\orders"
KILLS: Final = int(os.environ.get("MQPROTO_MEETING_KILLS", "4"))
EACH: Final = 60
"""About how many messages go each way between two kills."""


def alone(name: str, host: str, queues: str, more: str = "") -> Topology:
    """Return a topology of one node."""
    return parse(
        f'name = "{name}"\n[node.{name}]\naddress = "{host}:1801"\n{queues}\n{more}{SETTINGS}', f"{name}.toml"
    )


SHOP_QUEUES: Final = """
[node.shop.queue.replies]
transactional = true
strangers = true
[node.shop.queue.notices]
strangers = true
"""
SHOP: Final = alone("shop", SHOP_HOST, SHOP_QUEUES)
OFFICE_QUEUES: Final = """
[node.office.queue.orders]
transactional = true
strangers = true
[node.office.queue.notes]
strangers = true
"""
OFFICE: Final = alone("office", OFFICE_HOST, OFFICE_QUEUES)


@dataclass
class Pair:
    """`shop`, which calls, and `office`, which may not call it."""

    shop: NodeProcess
    office: NodeProcess


@asynccontextmanager
async def strangers(folder: Path, office: Topology = OFFICE) -> AsyncIterator[Pair]:
    """Run both nodes, each in a separate folder."""
    pair = Pair(*(NodeProcess(one, one.name, folder / one.name) for one in (SHOP, office)))
    try:
        for node in (pair.shop, pair.office):
            node.directory.mkdir()
            await node.start()
        yield pair
    finally:
        with trio.CancelScope(shield=True):
            for node in (pair.shop, pair.office):
                if node.process is not None:
                    await node.end(signal.SIGKILL)


async def received(client: Client, queue: str, count: int) -> list[Any]:
    """Receive `count` messages from a queue."""
    found: list[Any] = []
    while len(found) < count:
        async with client.transaction(queue, limit=count - len(found), timeout_s=60) as messages:
            assert messages, f"{len(found)} of {count} messages came to {queue}"
            found += messages
    return found


async def test_what_goes_to_a_direct_name_arrives_and_is_confirmed_by_one_who_may_not_call_back(
    tmp_path: Path,
) -> None:
    async with strangers(tmp_path) as pair, pair.shop.client() as shop, pair.office.client() as office:
        await shop.send(
            ORDERS,
            b"one",
            transactional=True,
            admin_queue=r".\private$\notices",
            response_queue=r".\private$\replies",
            acknowledgments=0x0F,
        )
        [order] = await received(office, "orders", 1)
        assert order.body == b"one"
        assert order.response_queue == f"PRIVATE={guid_text(SHOP.nodes['shop'].guid)}\\00000010"
        notices = await received(shop, "notices", 2)
        assert [notice.message_class for notice in notices] == ["ACK_REACH_QUEUE", "ACK_RECEIVE"]
        await until_sent(shop)
        await office.send(order.response_queue, b"an answer", transactional=True)
        [answer] = await received(shop, "replies", 1)
        assert answer.body == b"an answer"
        await until_sent(office)
        opened = {peer.host: peer.opened for peer in (await shop.peers()).peers}
        assert opened == {OFFICE_HOST: 0}, "office has called nobody"


@pytest.mark.timeout(120 + 10 * KILLS)
async def test_whoever_is_killed_nothing_is_lost_doubled_or_out_of_order_and_each_order_has_its_answer(
    tmp_path: Path,
) -> None:
    """The numbers of the received messages decide when the next node is killed: nothing here is timed."""
    dice = random.Random(19)
    count = KILLS * EACH
    orders: list[bytes] = []
    answers: list[bytes] = []
    progress = trio.Event()

    def took(into: list[bytes], bodies: list[bytes]) -> None:
        nonlocal progress
        into += bodies
        progress.set()
        progress = trio.Event()

    async def produce(shop: Client) -> None:
        for first in range(0, count, 20):
            while first - len(answers) > 2 * EACH:  # No more than a few kills' worth waits.
                await progress.wait()
            drafts = [
                Draft(body=f"{number}".encode(), transactional=True, response_queue=r".\private$\replies")
                for number in range(first, first + 20)
            ]
            await shop.send_many(ORDERS, drafts)

    async def answer(office: Client) -> None:
        while len(orders) < count:
            with suppress(RolledBack):
                async with office.transaction("orders", limit=8, timeout_s=1) as taken:
                    for order in taken:
                        reply = Draft(body=b"re " + order.body, transactional=True)
                        taken.send(order.response_queue, reply)
                took(orders, [order.body for order in taken])

    async def consume(shop: Client) -> None:
        while len(answers) < count:
            with suppress(RolledBack):
                async with shop.transaction("replies", limit=8, timeout_s=1) as taken:
                    pass
                took(answers, [reply.body for reply in taken])

    async with strangers(tmp_path) as pair:
        both = [
            connect(node.topology, node.name, node.directory, patience_s=60)
            for node in (pair.shop, pair.office)
        ]
        async with both[0] as shop, both[1] as office, trio.open_nursery() as nursery:
            nursery.start_soon(produce, shop)
            nursery.start_soon(answer, office)
            nursery.start_soon(consume, shop)
            for number in range(1, KILLS + 1):
                while len(answers) < number * EACH - dice.randrange(EACH):
                    await progress.wait()
                victim = dice.choice((pair.shop, pair.office))
                await victim.end(signal.SIGKILL)
                await victim.start()
        wanted = [f"{number}".encode() for number in range(count)]
        assert orders == wanted
        assert answers == [b"re " + body for body in wanted]
        async with pair.shop.client() as shop, pair.office.client() as office:
            await until_sent(shop)
            await until_sent(office)


# Names


class Names(trio.abc.HostnameResolver):
    """The operating system's answers about names; a test changes them."""

    def __init__(self, **addresses: list[str]) -> None:
        self.addresses = {name.replace("_", "-"): found for name, found in addresses.items()}
        self.asked: list[str] = []

    async def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        found = self.addresses.get(name)
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        kinds = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(kinds[":" in address], socket.SOCK_STREAM, 0, "", (address, port)) for address in found]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise AssertionError("nobody asks what an address is called")


@asynccontextmanager
async def shop_in(folder: Path) -> AsyncIterator[Client]:
    """Run `shop` in this process."""
    async with running(SHOP, "shop", folder), connect(SHOP, "shop", folder) as client:
        yield client


@asynccontextmanager
async def office_in(folder: Path, topology: Topology = OFFICE) -> AsyncIterator[Client]:
    """Run `office` in this process."""
    async with running(topology, "office", folder), connect(topology, "office", folder) as client:
        yield client


@asynccontextmanager
async def a_web_server(host: str) -> AsyncIterator[None]:
    """Run a server on port 1801 that is not a queue manager."""

    async def answer(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, answer, 1801, host=host)
        await nursery.start(serve)
        yield
        nursery.cancel_scope.cancel()


async def why(client: Client, subject: str, word: str) -> str:
    """Return the line of `mqproto explain` that contains a word, as soon as there is one."""
    explainer = Explainer(SHOP, str)
    while True:
        for line in explainer.lines({"shop": await client.explain(subject)}):
            if word in line:
                return line.strip()
        await trio.sleep(0.02)


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.1")
@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
async def test_a_name_is_looked_up_for_each_session_and_each_of_its_addresses_is_tried(
    tmp_path: Path,
) -> None:
    names = Names(office_pc=[ELSEWHERE, OFFICE_HOST])
    trio.socket.set_custom_hostname_resolver(names)
    orders = r"DIRECT=OS:office-pc\private$\orders"
    moved = alone("office", ELSEWHERE, OFFICE_QUEUES)
    async with shop_in(tmp_path / "shop") as shop:
        async with office_in(tmp_path / "office") as office:
            await shop.send(orders, b"one", transactional=True)
            assert [order.body for order in await received(office, "orders", 1)] == [b"one"]
            await until_sent(shop)
        names.addresses["office-pc"] = [ELSEWHERE]
        async with office_in(tmp_path / "office", moved) as office:
            await shop.send(orders, b"two", transactional=True)
            assert [order.body for order in await received(office, "orders", 1)] == [b"two"]
            await until_sent(shop)
            [known] = (await shop.peers()).met
    assert (known.host, known.address, known.other) == ("office-pc", ELSEWHERE, "")


@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
async def test_the_next_address_is_tried_after_one_at_which_something_else_is(tmp_path: Path) -> None:
    trio.socket.set_custom_hostname_resolver(Names(office_pc=[ELSEWHERE, OFFICE_HOST]))
    async with (
        a_web_server(ELSEWHERE),
        office_in(tmp_path / "office") as office,
        shop_in(tmp_path / "shop") as shop,
    ):
        await shop.send(r"DIRECT=OS:office-pc\private$\orders", b"one", transactional=True)
        assert [order.body for order in await received(office, "orders", 1)] == [b"one"]


async def test_a_peer_may_be_at_an_address_of_ipv6(tmp_path: Path) -> None:
    at_ipv6 = alone("office", "[::1]", OFFICE_QUEUES)
    async with office_in(tmp_path / "office", at_ipv6) as office, shop_in(tmp_path / "shop") as shop:
        orders = r"DIRECT=TCP:::1\private$\orders"
        await shop.send(orders, b"one", transactional=True, response_queue=r".\private$\replies")
        [order] = await received(office, "orders", 1)
        await office.send(order.response_queue, b"an answer", transactional=True)
        assert [answer.body for answer in await received(shop, "replies", 1)] == [b"an answer"]
        await until_sent(shop)
        await until_sent(office)
        hops = {hop for queue in (await shop.queues()).outgoing for hop in queue.next_hops}
        assert hops == {"[::1]:1801"}


async def test_why_nothing_moves_is_said_in_one_line_and_the_message_stays_where_it_is(
    tmp_path: Path,
) -> None:
    trio.socket.set_custom_hostname_resolver(Names())
    async with a_web_server(ELSEWHERE), shop_in(tmp_path / "shop") as shop:
        said = {
            r"DIRECT=OS:nowhere\private$\q": "not connected to nowhere:1801 for 0 s: no computer is found under ",
            rf"DIRECT=TCP:{ELSEWHERE}\private$\q": f"not connected to {ELSEWHERE}:1801 for 0 s: it speaks no MSMQ: ",
            rf"DIRECT=TCP:{NOWHERE}\private$\q": f"not connected to {NOWHERE}:1801 for 0 s: connection refused by ",
        }
        for name, begins in said.items():
            await shop.send(name, b"one", transactional=True)
            line = await why(shop, name, "not connected to")
            assert re.sub(r"for \d+ s", "for 0 s", line).startswith(begins)
            [queue] = (await shop.explain(name)).status.outgoing
            assert (queue.waiting, queue.sequence) == (1, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("DL=6b6c6d6e-0000-0000-0000-000000000001", "mqproto sends to no such queues"),
        ("MULTICAST=239.1.1.1:8001", "mqproto sends to no such queues"),
        (r"DIRECT=HTTP://office/msmq/private$/orders", "mqproto speaks TCP"),
        (r"DIRECT=HTTP://office/MSMQ\private$\orders", "mqproto speaks TCP"),
        (
            r"PRIVATE=6b6c6d6e-0000-0000-0000-000000000001\10",
            "none was met: send to it by a direct format name",
        ),
        (rf"DIRECT=TCP:{OFFICE_HOST}\system$;deadxact", "nobody sends to a system queue"),
        (r"office\orders", "no node 'office'"),
    ],
)
async def test_names_that_nothing_can_be_sent_to_are_refused_by_name(
    name: str, said: str, tmp_path: Path
) -> None:
    async with shop_in(tmp_path / "shop") as shop:
        with pytest.raises((UsageError, FormatNameError), match=re.escape(said)):
            await shop.send(name, b"one", transactional=True)


# What operators say and see


async def typed(folder: Path, topology: Topology, *arguments: str) -> Done:
    """Run a command about a node that keeps running in this process."""
    file = folder / f"{topology.name}.toml"
    await trio.Path(file).write_text(as_toml(topology))
    place = ("--topology", file, "--directory", folder / topology.name)
    return await trio.to_thread.run_sync(partial(in_process, *arguments, *place))


async def test_an_operator_gives_a_peer_a_name_by_which_its_queues_go(tmp_path: Path) -> None:
    guid = guid_text(OFFICE.nodes["office"].guid)
    async with office_in(tmp_path / "office") as office, shop_in(tmp_path / "shop") as shop:
        done = await typed(tmp_path, SHOP, "peers", "add", "Depot", "--address", OFFICE_HOST, "--probe")
        assert (done.status, done.out) == (
            0,
            f"shop: Depot is added: at {OFFICE_HOST}; queue manager {guid}; added by an operator\n",
        )
        done = await typed(
            tmp_path, SHOP, "send", r"depot\private$\orders", "--transactional", "--body", "one"
        )
        assert done.status == 0, done.err
        await shop.send(f"PRIVATE={guid}\\00000010", b"two", transactional=True)
        bodies = sorted(order.body for order in await received(office, "orders", 2))
        assert bodies == [b"one", b"two"], "each name has a sequence of its own"
        await until_sent(shop)
        shown = (await typed(tmp_path, SHOP, "peers", "show")).out.splitlines()
        [line] = [line for line in shown if "Depot" in line]
        assert re.fullmatch(
            rf"  Depot: at {OFFICE_HOST}; queue manager {guid}; added by an operator; last seen \d+ s ago",
            line,
        )
        done = await typed(tmp_path, SHOP, "peers", "remove", "DEPOT")
        assert done.out.startswith("shop: Depot is forgotten: ")
        with pytest.raises(UsageError, match="no node 'depot'"):
            await shop.send(r"depot\private$\orders", b"three", transactional=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("add", "depot", "--address", "10.0.0.7:1801"),
            "shop: 10.0.0.7:1801: a queue manager is called at port 1801",
        ),
        (("add", "de/pot", "--address", OFFICE_HOST), "shop: a computer name cannot contain '/'"),
        (
            ("add", "shop", "--address", OFFICE_HOST),
            "shop: shop is a node of the topology: choose another name",
        ),
        (
            ("add", "depot", "--address", OFFICE_HOST, "--guid", "7"),
            "'7' is not a GUID: write it as mqproto probe",
        ),
        (
            ("add", "depot", "--address", NOWHERE, "--probe"),
            f"{NOWHERE}: nobody listens; add it without",
        ),
        (
            ("remove", "depot"),
            "shop: no peer is called 'depot', and none with that GUID was met; names are: none",
        ),
        (("add", "depot"), "say where it is: --address HOST, or --also ADDRESS"),
        (("add", "depot", "--also", "depot.example"), "shop: depot.example: --also takes an address"),
        (("add", "depot", "--also", "10.0.0.9"), "shop: no peer is called 'depot', and none"),
        (
            ("move", "depot"),
            "shop: no peer is called 'depot', and none with that GUID was met; names are: none",
        ),
    ],
)
async def test_what_an_operator_says_wrongly_of_a_peer_is_refused_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    async with shop_in(tmp_path / "shop"):
        done = await typed(tmp_path, SHOP, "peers", *arguments)
    assert done.status == 2
    assert done.complaint.startswith(said)


async def test_a_cloned_machine_is_refused_and_both_addresses_are_shown_and_one_that_moved_is_moved(
    tmp_path: Path,
) -> None:
    guid = guid_text(SHOP.nodes["shop"].guid)
    clone = alone("shop", ELSEWHERE, SHOP_QUEUES)
    async with office_in(tmp_path / "office") as office:
        async with shop_in(tmp_path / "shop") as shop:
            await shop.send(ORDERS, b"one", transactional=True)
            await until_sent(shop)
            async with (
                running(clone, "shop", tmp_path / "clone"),
                connect(clone, "shop", tmp_path / "clone") as other,
            ):
                await other.send(ORDERS, b"from a clone", transactional=True)
                line = await told(office, "so this GUID is at both")
                assert line.startswith(
                    f"queue manager {guid} was met at {SHOP_HOST}, and by office at {ELSEWHERE} as well: "
                )
        shown = (await typed(tmp_path, OFFICE, "peers", "show")).out
        assert f"its GUID was met at {ELSEWHERE} " in shown
        async with (
            running(clone, "shop", tmp_path / "shop"),
            connect(clone, "shop", tmp_path / "shop") as moved,
        ):
            await moved.send(ORDERS, b"two", transactional=True)
            assert "mqproto peers move" in await told(office, "an operator has to say so")
            done = await typed(tmp_path, OFFICE, "peers", "move", guid)
            assert done.out.startswith(f"office: {guid} has moved: at {ELSEWHERE}; ")
            await until_sent(moved)
        assert [order.body for order in await received(office, "orders", 2)] == [b"one", b"two"]


async def told(client: Client, word: str) -> str:
    """Return the line of `mqproto explain` that contains a word and is not about a queue, as soon as there is one."""
    explainer = Explainer(OFFICE, str)
    while True:
        for line in explainer.lines({"office": await client.explain("")}):
            if word in line:
                return line
        await trio.sleep(0.02)
