"""One message of a capture: how it is named, which of its packets are played, and how it is sent as a new message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.decode.selection import MessageNamed
from mqproto.captures.net.conversation import Side
from mqproto.captures.script import Script, read_script, survey
from mqproto.simulator.replay.onemessage import alone, as_new, described, find_message
from mqproto.simulator.replay.rewrite import read_map
from mqproto.wire import UserMessage, guid_text
from tests.conversations import (
    CLIENT,
    DESTINATION,
    SENDER,
    Said,
    a_message,
    acknowledged,
    an_order_ack,
    answered,
    exchange,
    handshake,
    seen,
    write,
)
from tests.examples import a_security_header

QUEUE = f"PRIVATE={guid_text(DESTINATION)}\\00000011"


def found(path: Path, text: str, **options: Any) -> Script:
    """Return the script of the one message with this name."""
    packets = seen(path)
    part, identity = find_message(packets, survey(packets), MessageNamed(text, "--message"), **options)
    return alone(read_script(packets, part), identity)


@pytest.mark.parametrize("text", ["label 2", "102", f"{guid_text(SENDER)}\\102"])
def test_a_message_goes_by_its_label_or_its_identifier(tmp_path: Path, text: str) -> None:
    script = found(write(tmp_path / "c", answered([1, 2, 3])), text)
    [message] = script.messages
    assert (message.identity, script.message(0).properties.message_body) == ((SENDER, 102), b"body 2")
    assert described(script) == (
        f"message {guid_text(SENDER)}\\102 'label 2' of the client's side of connection 0, {CLIENT} to 10.0.0.2:1801"
    )


def test_what_was_answered_to_it_is_expected_and_nothing_of_the_others(tmp_path: Path) -> None:
    talk = exchange([a_message(number) for number in (1, 2, 3)], [an_order_ack(1)])
    path = write(tmp_path / "c", talk)
    first, third = found(path, "label 1"), found(path, "label 3")
    assert [fate.ordered for fate in first.answers.fates] == [True]
    assert [fate.ordered for fate in third.answers.fates] == [False]
    assert (first.answers.order_ack_count, third.answers.order_ack_count) == (1, 0)
    assert all(fate.acknowledged for fate in (*first.answers.fates, *third.answers.fates))


def test_it_waits_for_nothing_that_the_peer_had_said_before_it(tmp_path: Path) -> None:
    talk = [
        *handshake(),
        Said(Side.SERVER, a_message(1, source=DESTINATION, destination_manager=SENDER)),
        acknowledged(Side.CLIENT, 1),
        Said(Side.CLIENT, a_message(2)),
    ]
    script = found(write(tmp_path / "c", talk), "label 2")
    [[step]] = [scene.steps for scene in script.scenes]
    assert (step.heard, step.heard_messages, script.heard_message_count) == (0, 0, 0)


def test_a_message_that_was_sent_again_is_one(tmp_path: Path) -> None:
    path = write(tmp_path / "c", answered([1]), answered([1, 2]))
    assert [connection.number for connection in found(path, "label 1").part.connections] == [0]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("label", {}, "'label': no message has this identifier or, as a whole, this label; "),
        ("7", {}, "'7': no message has"),
        ("label 1", {"only": 1}, "no message on connection 1 has"),
        ("label 1", {"side": "server"}, "no message of server has"),
        (
            "the same",
            {},
            f"2 messages are called so; name one: {guid_text(SENDER)}\\103, {guid_text(SENDER)}\\104",
        ),
    ],
)
def test_none_or_several_are_refused_in_one_line(
    tmp_path: Path, text: str, options: dict[str, Any], words: str
) -> None:
    alike = [a_message(number, label="the same") for number in (3, 4)]
    path = write(tmp_path / "c", answered([1, 2]), exchange(alike))
    with pytest.raises(UsageError) as refusal:
        found(path, text, **options)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_of_many_that_fit_the_first_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "c", exchange([a_message(number, label="x") for number in range(1, 9)]))
    with pytest.raises(UsageError, match=r"8 messages are called so; .*\\105 and 3 more$"):
        found(path, "x")


def test_one_of_which_the_capture_has_a_part_is_told_of(tmp_path: Path) -> None:
    packets = seen(write(tmp_path / "c", answered([1, 2])))
    [whole] = [each for each in packets if isinstance(each.packet, UserMessage) and b"body 2" in each.data]
    whole.cut_bytes = 10
    with pytest.raises(UsageError, match="beside 1 packets that the capture has in part"):
        find_message(packets, survey(packets), MessageNamed("label 2", "--message"))


# As a new message


def test_as_a_new_message_it_says_what_its_application_said(tmp_path: Path) -> None:
    queue, draft = as_new(found(write(tmp_path / "c", answered([1, 2])), "label 2"))
    assert (queue, draft.label, draft.body, draft.transactional) == (QUEUE, "label 2", b"body 2", True)


def test_its_queue_is_mapped_whatever_the_case(tmp_path: Path) -> None:
    script = found(write(tmp_path / "c", answered([1])), "label 1")
    maps = [read_map(f"PRIVATE={guid_text(DESTINATION).lower()}\\00000011=DIRECT=OS:desk\\private$\\orders")]
    assert as_new(script, maps)[0] == r"DIRECT=OS:desk\PRIVATE$\orders"


def test_a_signature_or_a_seal_cannot_be_made_again(tmp_path: Path) -> None:
    signed = a_message(1)
    signed.user.has_security, signed.security = True, a_security_header()
    script = found(write(tmp_path / "c", exchange([signed])), "label 1")
    with pytest.raises(UsageError, match=r"its sender alone can make: play it with --to$"):
        as_new(script)
