"""A test suite of a user who has only installed `mqproto[testing]`; `make wheel` runs it in this way."""

from __future__ import annotations

from mqproto.simulator.testing.managers import Starting


def test_an_order_arrives_though_links_were_cut_and_stalled_and_a_node_was_killed(
    queue_managers: Starting,
) -> None:
    managers = queue_managers()
    assert managers.names == ["qm1", "qm2", "qm3"]
    managers.cut("qm1", "qm2")
    managers.stall("qm2", "qm3")
    with managers.connect("qm1") as client, managers.connect("qm3") as other:
        client.send(r"qm3\private$\orders", b"a bolt", transactional=True)
        assert other.receive("orders", timeout_s=0) == []
        managers.mend("qm1", "qm2")
        managers.kill("qm2")
        managers.start("qm2")
        managers.mend("qm2", "qm3")
        assert [message.body for message in other.receive("orders", timeout_s=60)] == [b"a bolt"]
    assert managers.log("qm2").count('"event": "started"') == 2
