from __future__ import annotations

import pytest

from mqproto.captures.decode import Analyst, Finding
from mqproto.captures.decode.sessions import connections as module
from mqproto.captures.decode.sessions.connections import Origins
from mqproto.captures.files.frame import Frame
from mqproto.captures.net.conversation import Segments, Side
from mqproto.captures.net.tcp import ACK, SYN, Endpoint
from mqproto.captures.packets import PacketReader
from mqproto.captures.script import survey
from mqproto.captures.spoil import at_hosts, placed, skewed
from mqproto.wire import establish_connection
from tests.captures.decode.scene import MILLISECOND, Scene, address, express, guid, names, passed_on
from tests.captures.frames import moved, shakes_hands
from tests.captures.pipeline.stages.local import analyse
from tests.captures.pipeline.stages.table import packet_table


def test_ends_are_told_apart_by_port_if_the_capture_begins_in_the_middle() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    wire.ack("c")
    [sight] = scene.sights()[0]
    assert sight.hop == ("10.0.0.3:1801", "10.0.0.1")
    odd = Scene()
    wire = odd.wire("a", "c", opened=False)
    wire.ends["c"].endpoint = Endpoint("10.0.0.3", 2_000)
    wire.ack("c")
    assert odd.sights()[0][0].hop == ("10.0.0.3:2000", "10.0.0.1")


def test_what_a_handshake_has_told_holds_for_other_connections_of_the_same_addresses() -> None:
    scene = Scene()
    scene.wire("a", "c")
    scene.wire("a", "c", opened=False).send("a", express())
    sight = scene.sights()[0][-1]
    assert sight.hop == (guid("a"), guid("c"))


def test_an_answer_tells_who_the_ends_are_though_the_capture_lacks_its_request() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    del scene.packets[0]
    wire.send("a", express())
    assert scene.sights()[0][-1].hop == (guid("a"), guid("c"))


def test_an_answer_that_does_not_fit_its_request_tells_nothing() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    for end, server in (("a", "c"), ("c", "b")):
        wire.put(end, establish_connection(client=guid("a"), server=guid(server), time_stamp_ms=0))
    scene.wire("b", "c", opened=False).ack("b")
    assert scene.sights()[0][-1].hop == (address("b").host, "10.0.0.3:1801")


def test_an_address_of_several_queue_managers_is_none_of_them() -> None:
    scene = Scene()
    scene.wire("a", "c")
    second = scene.wire("b", "c", opened=False)
    second.ends["b"].endpoint = scene.packets[0].source._replace(port=50_001)
    second.open()
    third = scene.wire("a", "c", opened=False)
    third.send("a", express())
    assert scene.sights()[0][-1].hop == (address("a").host, guid("c"))


def test_connections_and_addresses_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTION_LIMIT", 5)
    monkeypatch.setattr(module, "ADDRESS_LIMIT", 7)
    scene = Scene()
    for number in range(40):
        wire = scene.wire("a", "c", opened=False)
        wire.ends["a"].endpoint = Endpoint(f"10.1.0.{number}", 50_000)
        wire.open()
    analyst = Analyst(names("c"))
    for seen in scene.packets:
        analyst.take(seen)
    assert len(analyst._connections.everyone()) == 5
    assert len(analyst._connections._addresses.hosts) <= 8


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
def test_who_is_where_is_known_from_messages_on_their_first_hop_unless_they_disagree() -> None:
    origins = Origins()
    one, six = Endpoint("10.0.0.1", 50_000), Endpoint("::1", 1_801)
    assert origins.learn(one, guid("a"))
    assert not origins.learn(Endpoint("10.0.0.1", 50_000), guid("a"))
    origins.learn(six, guid("f"))
    hops = {
        key: origins.resolve(key) for key in ("10.0.0.1", "10.0.0.1:1801", "::1", "[::1]:1801", "10.0.0.2")
    }
    assert list(hops.values()) == [guid("a"), guid("a"), guid("f"), guid("f"), "10.0.0.2"]
    assert origins.learn(Endpoint("10.0.0.1", 1_801), guid("b"))
    assert origins.resolve("10.0.0.1") == "10.0.0.1"
    assert origins.resolve("10.0.0.1:1801") == guid("b")
    assert origins.resolve_hop((guid("c"), "10.0.0.1:50000")) == (guid("c"), guid("a"))
    assert dict(origins.everyone())["10.0.0.1:1801"] == guid("b")


def test_a_hop_does_not_join_a_queue_manager_with_itself_though_both_ends_have_its_address() -> None:
    origins, hop = Origins(), ("127.0.0.1", "127.0.0.1:33761")
    origins.learn(Endpoint("127.0.0.1", 49_561), guid("a"))
    assert (origins.resolve(hop[0]), origins.resolve(hop[1])) == (guid("a"), guid("a"))
    assert origins.resolve_hop(hop) == hop


def test_who_is_at_two_addresses_is_believed_where_a_handshake_has_said_so() -> None:
    origins = Origins()
    origins.learn(Endpoint("10.0.0.1", 50_000), guid("a"), told=True)
    origins.learn(Endpoint("10.0.0.4", 50_000), guid("a"))
    assert (origins.resolve("10.0.0.1"), origins.resolve("10.0.0.4")) == (guid("a"), "10.0.0.4")


def listening(*claims: tuple[str, str]) -> list[str]:
    """Return the notes about identities if queue managers answer, one after another, at these addresses.

    Each note is given with the number of the handshake that it is about.
    """
    scene = Scene()
    for name, place in claims:
        wire = scene.wire("a", name, opened=False)
        wire.ends[name].endpoint = address(place)
        wire.open()
    found = [finding for finding in scene.findings() if finding.code == "identity-conflict"]
    told = analyse(packet_table(scene.packets)).rows("findings")
    assert sorted((row["number"], row["text"]) for row in told if row["code"] == "identity-conflict") == [
        (finding.packet, finding.text) for finding in found
    ]
    return [f"{(finding.packet + 2) // 4}: {finding.text.rpartition(': ')[2]}" for finding in found]


def test_an_address_that_two_claim_in_turn_is_told_once() -> None:
    both = "two queue managers claim one address"
    assert listening(*[("b", "b"), ("c", "b")] * 3) == [f"3: {both}"]
    assert listening(("b", "b"), ("c", "b"), ("c", "b")) == []  # It was set up anew.


def test_a_queue_manager_that_listens_at_two_addresses_in_turn_is_told_once() -> None:
    assert listening(*[("b", "b"), ("b", "c")] * 3) == [
        "3: it has two addresses, or two queue managers claim to be it"
    ]
    assert listening(("b", "b"), ("b", "c"), ("b", "c")) == []  # It moved.


def relayed(port: int) -> list[Frame]:
    """Return frames in which a sends five messages to c through b.

    There is a sniffer at each of the first two nodes, and the sniffers' clocks differ.
    """
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    for number in range(1, 6):
        message = express(message_id=number)
        first.send("a", message)
        first.ack("b")
        second.send("b", passed_on(message))
        second.ack("c")
    talks: dict[int, Segments] = {}
    frames: list[bytes] = []
    for seen in scene.packets:
        talk = talks.get(seen.connection)
        if talk is None:
            talk = talks[seen.connection] = Segments(seen.source, seen.destination)
            for sender, flags in ((Side.CLIENT, SYN), (Side.SERVER, SYN | ACK), (Side.CLIENT, ACK)):
                frames.append(talk.leave(sender, flags))
                talk.arrive(sender.other)
        side = Side.SERVER if seen.source.port == 1801 else Side.CLIENT
        frames += talk.leave_data(side, seen.data)
        talk.arrive(side.other)
    whole = [Frame(MILLISECOND * place, frame) for place, frame in enumerate(frames, 1)]
    points = skewed(at_hosts(moved(whole, port)), 40 * MILLISECOND, interfaces=[1])
    return [frame for frame in points if frame.interface.number < 2]


def said_of(frames: list[Frame]) -> tuple[set[str], dict[tuple[int, int], set[object]]]:
    """Return the codes of the findings, and the hops of each message at each point."""
    analyst = Analyst()
    codes: set[str] = set()
    hops: dict[tuple[int, int], set[object]] = {}
    numbered = (frame._replace(number=number) for number, frame in enumerate(frames, 1))
    findings: list[Finding] = []
    for seen in PacketReader(numbered):
        sight = analyst.take(seen)
        findings += sight.findings
        if sight.user is not None:
            hops.setdefault((seen.interface.number, sight.user.message_id), set()).add(sight.hop)
    codes = {each.code for each in (*findings, *analyst.finish())}
    return codes - {"resend", "missing-bytes"}, hops


PORTS = (1801, 700, 41_801, 65_001)
"""MSMQ's own port, and others that are lower and higher than those of clients."""


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("without_syns", [False, True])
def test_any_frame_of_a_handshake_may_be_lost_at_either_of_two_points(port: int, without_syns: bool) -> None:
    frames = relayed(port)
    whole = said_of(frames)
    assert whole[0] == set()
    assert {hops for each in whole[1].values() for hops in each} == {
        (guid("a"), guid("b")),
        (guid("b"), guid("c")),
    }
    if without_syns:
        frames = [frame for frame in frames if (at := placed(frame)) and not at.flags & SYN]
    assert said_of(frames) == whole
    for place in [place for place, frame in enumerate(frames) if shakes_hands(frame)]:
        rest = [*frames[:place], *frames[place + 1 :]]
        assert said_of(rest) == whole
        for number in (0, 1):
            one = [frame for frame in rest if frame.interface.number == number]
            assert said_of(one) == (set(), {key: hops for key, hops in whole[1].items() if key[0] == number})
            clients = {each.client.port for each in survey(PacketReader(one))}
            assert not clients & {port}
