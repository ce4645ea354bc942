"""One small conversation that has a bit of everything, for the tests of views."""

from __future__ import annotations

from typing import Final

from mqproto.captures.decode import Follower, Ladder, Names
from mqproto.wire import Ping, ping_packet
from tests.captures.decode.scene import (
    MILLISECOND,
    Scene,
    express,
    final,
    guid,
    names,
    ordered,
    passed_on,
    transactional,
)

KNOWN: Final = names("a", "b", "c")


def story() -> Scene:
    """Return a scene: a sends two orders to c through b.

    The second hop breaks, one order is repeated, and both arrive.
    """
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    first.send("a", transactional(1))
    second.send("b", passed_on(transactional(1)))
    first.send("a", transactional(2))
    first.ack("b")
    scene.now_ns += 2_000 * MILLISECOND
    second = scene.wire("b", "c")
    second.send("b", passed_on(transactional(1)))
    second.send("b", passed_on(transactional(2)))
    second.send("c", ordered(2), riding=True)
    first.send("b", passed_on(ordered(2)))
    second.send("c", final(2))
    first.send("b", passed_on(final(2)))
    first.send(
        "b",
        express(
            source=guid("b"),
            destination_manager=guid("a"),
            message_class=2,
            correlation_id=guid("a") + (1).to_bytes(4, "little"),
        ),
    )
    first.ack("a")
    first.ack("a", user_msg_sequence_number=9)
    return scene


def pinged(scene: Scene) -> Scene:
    """Return the conversation with a Ping at its end."""
    wire = scene.wire("a", "c", opened=False)
    wire.number = -1
    wire.put("a", ping_packet.encode(Ping(cookie=7, qm_guid=guid("a"))))
    return scene


def followed(target: str, scene: Scene, known: Names = KNOWN) -> Follower:
    follower = Follower(target, known)
    for sight in scene.sights(known)[0]:
        follower.take(sight)
    return follower


def ladder(scene: Scene, limit: int = 1_000) -> Ladder:
    drawn = Ladder(KNOWN, limit)
    for sight in scene.sights(KNOWN)[0]:
        drawn.add(sight)
    return drawn
