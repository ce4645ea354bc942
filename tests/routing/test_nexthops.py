"""The next hops."""

from __future__ import annotations

import pytest

from mqproto.routing import MSMQ_PORT, NextHop, Routes
from tests.pair import guid_of

B = NextHop(guid_of("b"), "10.0.0.2", 1_802)


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.7.5")
def test_a_manager_has_its_next_hops_in_order_or_none() -> None:
    d = NextHop(guid_of("d"), "10.0.0.4")
    routes = Routes(managers={guid_of("c"): (B, d)})
    assert routes.to_manager(guid_of("c")) == (B, d)
    assert routes.to_manager(guid_of("b")) == ()


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.1")
@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
def test_a_host_is_called_at_the_standard_port_unless_we_know_better() -> None:
    routes = Routes(hosts={"server-b": B})
    assert routes.to_host("Server-B") == B
    assert routes.to_host("10.0.0.9") == NextHop(None, "10.0.0.9", MSMQ_PORT)


def test_a_next_hop_reads_as_host_and_port() -> None:
    assert str(B) == "10.0.0.2:1802"
