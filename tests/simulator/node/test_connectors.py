"""Messages for a foreign system, over TCP and through an intermediate; people and programs use the names of its
queues.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.client import connect
from mqproto.simulator.topology import parse
from mqproto.wire.guid import guid_from_text
from tests.simulator.running import running

GUID = "557358D1-5055-9591-9549-97B6E611EA26"
PLAIN, XACT, PUBLIC = f"CONNECTOR={GUID}", f"CONNECTOR={GUID};XACTONLY", f"PUBLIC={GUID}"
TEXT = f"""
[node.shop.queue.answers]
[node.middle]
[node.gateway.queue.plain]
connector = "{GUID}"
[node.gateway.queue.xact]
connector = "{GUID}"
transactional = true
[node.gateway.queue.orders]
[[link]]
between = ["shop", "middle"]
[[link]]
between = ["middle", "gateway"]
"""


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@pytest.mark.spec("[MS-MQMQ] 2.1.6")
async def test_a_connector_application_receives_what_others_send_to_its_foreign_system(
    tmp_path: Path,
) -> None:
    topology = parse(TEXT, "connectors.toml").with_free_ports()
    async with AsyncExitStack() as nodes:
        for name in topology.nodes:
            await nodes.enter_async_context(running(topology, name, tmp_path))
        shop = await nodes.enter_async_context(connect(topology, "shop", tmp_path))
        gateway = await nodes.enter_async_context(connect(topology, "gateway", tmp_path))
        await shop.send_many(rf"{PLAIN},gateway\orders", [Draft(body=b"out", response_queue="answers")])
        await shop.send(XACT, b"in", transactional=True)
        [out] = await gateway.receive(PLAIN, timeout_s=60)
        [order] = await gateway.receive("orders", timeout_s=60)
        async with gateway.transaction(XACT, timeout_s=60) as [inside]:
            pass
        assert (out.body, order.body, inside.body) == (b"out", b"out", b"in")
        assert sorted(out.destinations) == sorted(order.destinations)
        assert PUBLIC in out.destinations, "as the packet has it"

        # The connector application answers, and names itself as whom to answer.
        await gateway.send(out.response_queue, b"from outside", response_queue=PLAIN)
        [answer] = await shop.receive("answers", timeout_s=60)
        assert answer.response_queue == PUBLIC
        await shop.send(answer.response_queue, b"again")
        [again] = await gateway.receive("plain", timeout_s=60)
        assert again.body == b"again"

        for name, transactional in ((PLAIN, True), (XACT, False)):
            for client in (shop, gateway):
                with pytest.raises(UsageError, match=rf"^{name} takes (no )?transactional messages"):
                    await client.send_many(name, [Draft(body=b"x", transactional=transactional)])
        with pytest.raises(UsageError, match="no foreign system has the GUID"):
            await shop.send(f"CONNECTOR={GUID.replace('5', '6')}", b"x")
        with pytest.raises(UsageError, match=f"^plain has the GUID {GUID} already: choose another$"):
            await shop.make("bills", public=guid_from_text(GUID))
        with pytest.raises(UsageError, match="is a queue of gateway: receive from it there"):
            await shop.receive(PLAIN, timeout_s=0)
