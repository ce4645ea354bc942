"""Commands given by hand within one process; tests/simulator/cli/test_running.py tests them on the command line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import trio

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.simulator.rig.byhand import Deed, Hands, asked, broken_now
from mqproto.simulator.rig.links import Links
from mqproto.simulator.rig.supervisor import Supervisor
from mqproto.simulator.topology import load, places
from mqproto.simulator.topology.places import Place

TOPOLOGY = load("three-node")
ENDS = ("sender", "intermediate")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def hands(tmp_path: Path, said: list[str]) -> Hands:
    return Hands(Supervisor(TOPOLOGY, tmp_path), Links(TOPOLOGY), said.append)


async def test_what_is_broken_is_known_until_it_is_mended(hands: Hands, said: list[str]) -> None:
    cut = await hands.carry_out(Deed.CUT, ["Intermediate", "sender"])
    assert [effect.undone_by for effect in cut.effects] == ["mend sender intermediate"]
    assert hands.broken == {ENDS: Deed.CUT}
    assert "was cut before" in (await hands.carry_out(Deed.CUT, ["sender"])).effects[0].text
    await hands.carry_out(Deed.STALL, ["sender"])
    assert hands.broken == {ENDS: Deed.STALL}
    mended = await hands.carry_out(Deed.MEND)
    assert (len(mended.effects), hands.broken) == (len(TOPOLOGY.links), {})
    assert said[-2:] == ["sender-intermediate is mended", "intermediate-destination was whole"]


async def test_a_link_that_is_stalled_after_a_cut_is_cut_no_more(tmp_path: Path) -> None:
    links = Links(TOPOLOGY)
    hands = Hands(Supervisor(TOPOLOGY, tmp_path), links, print)
    for deed, refuses in ((Deed.CUT, True), (Deed.STALL, False), (Deed.CUT, True), (Deed.MEND, False)):
        await hands.carry_out(deed, ENDS)
        assert {proxy.is_refusing for proxy in links.between(*ENDS).proxies} == {refuses}


async def test_who_is_killed_though_it_does_not_run_stays_down(hands: Hands) -> None:
    await hands.carry_out(Deed.KILL, ["destination", "DESTINATION"])
    done = await hands.carry_out(Deed.KILL, ["destination"])
    assert (done.effects[0].text, hands.down) == ("destination: did not run, and stays down", ["destination"])


@pytest.mark.parametrize("deed", Deed)
async def test_nothing_is_done_if_one_of_the_nodes_is_not_there(
    hands: Hands, said: list[str], deed: Deed
) -> None:
    done = await hands.carry_out(deed, ["sender", "sendr"])
    assert (done.effects, done.is_misuse) == ([], True)
    assert "did you mean 'sender'" in done.failure
    assert not said


async def test_who_is_to_be_killed_has_to_be_named(hands: Hands) -> None:
    assert (await hands.carry_out(Deed.KILL)).failure == "kill: name a node"


async def test_links_that_have_no_proxies_cannot_be_broken(tmp_path: Path) -> None:
    hands = Hands(Supervisor(TOPOLOGY, tmp_path), None, print)
    assert (await hands.carry_out(Deed.CUT, ENDS)).failure.endswith("start it with --breakable")


async def test_who_orders_through_the_socket_hears_what_was_done_and_what_could_not_be(
    hands: Hands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(TOPOLOGY, tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(hands.serve, places.run_socket(tmp_path, TOPOLOGY.name))
        done = await asked(place, Deed.CUT, ENDS)
        done.raise_failure()
        assert (done.effects[0].undone_by, done.links) == (f"mend {' '.join(ENDS)}", [(*ENDS, "cut")])
        with pytest.raises(UsageError, match="name a node"):
            (await asked(place, Deed.KILL)).raise_failure()
        nursery.cancel_scope.cancel()
    with pytest.raises(
        MqprotoError, match=r"^no mqproto run has the nodes of three-node; start it: mqproto run"
    ):
        await asked(place, Deed.LOOK)
    (tmp_path / "file").touch()
    monkeypatch.setattr(places, "run_socket", lambda *_: tmp_path / "file" / "below")
    with pytest.raises(MqprotoError, match=r"/file/below: Not a directory"):
        await asked(place, Deed.LOOK)


async def test_who_asks_what_was_broken_by_hand_hears_how_to_mend_it(
    hands: Hands, tmp_path: Path, said: list[str]
) -> None:
    place = Place(TOPOLOGY, tmp_path)
    assert await broken_now(place) == []  # No run is there.
    async with trio.open_nursery() as nursery:
        await nursery.start(hands.serve, places.run_socket(tmp_path, TOPOLOGY.name))
        assert await broken_now(place) == []  # All links are whole.
        await hands.carry_out(Deed.SLOW, ENDS)
        said.clear()
        [link] = await broken_now(place)
        mend = f"mqproto mend sender intermediate --directory {tmp_path}"
        assert (link.nodes, link.state, link.undone_by) == ([*ENDS], "slow", mend)
        assert link.told() == f"sender-intermediate is slow by hand; to undo: {mend}"
        assert said == []  # To look is nothing that the run tells of.
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("answer", [b"", b'{"effects":['])
@pytest.mark.parametrize("ends", [False, True])
async def test_an_answer_that_does_not_come_to_its_end_is_none(
    tmp_path: Path, answer: bytes, ends: bool
) -> None:
    """The run is killed while it answers, or takes too long."""

    async def answers(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.send_all(answer)
            await trio.sleep(0 if ends else math.inf)

    with places.listening(places.run_socket(tmp_path, TOPOLOGY.name), 1) as listener:
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listener))]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, answers, listeners)
            with pytest.raises(MqprotoError, match="not answered, or not to the end"):
                await asked(Place(TOPOLOGY, tmp_path), Deed.MEND, patience_s=0.1)
            nursery.cancel_scope.cancel()
