"""The judge itself: false claims are found, claims that it does not know are unchecked, and "not known" needs a second
world.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.captures import spoil
from mqproto.captures.decode import Finding, Kind, Severity
from mqproto.captures.decode.journeys import message_key
from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.sight import MESSAGES
from mqproto.captures.files.frame import Frame
from mqproto.captures.net.heads import HEAD_BYTES
from mqproto.captures.packets import read_packets
from mqproto.captures.pipeline.tables.lists import key_text
from mqproto.wire import EstablishConnection, Guid, UserMessage
from tests.captures.decode.scene import Scene, final, guid, ordered, passed_on, transactional
from tests.captures.truth.claims import Verdict
from tests.captures.truth.finding import Hunt, hunt
from tests.captures.truth.judging import judged, true_of
from tests.captures.truth.kinds import KINDS
from tests.captures.truth.knowing import Known, Truth, messages_in
from tests.captures.truth.saying import Series, decoded, in_order, is_one_sniffers, written
from tests.captures.truth.second import STRANGER, fits, fits_beyond, fits_elsewhere, fits_passed_over, ways_to
from tests.captures.truth.stories import Stories
from tests.captures.truth.whole import Coverage
from tests.captures.truth.worlds import thinned, world


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return world(28, tmp_path_factory.mktemp("world")).truth


def claims(truth: Truth, frames: list[Frame]) -> Stories:
    return Stories(truth, Coverage(truth.whole, frames), decoded([frames]))


def a_later_one(truth: Truth) -> Known:
    """Return a confirmed message that is not the first in its sequence."""
    return next(
        known
        for known in truth.messages.values()
        if known.sequence is not None
        and known.sequence[2] > 1
        and known.arrivals
        and truth.tabled.outcomes[known.name] == "confirmed"
        and (*known.sequence[:2], known.sequence[2] - 1) in truth.numbered
    )


def test_what_is_said_of_the_whole_capture_is_true(truth: Truth) -> None:
    judge = claims(truth, truth.whole.frames)
    assert {judge.of_finding(finding) for finding in truth.decoded.findings} <= {Verdict.TRUE}
    for name, sentences in truth.tabled.stories.items():
        assert {holds for _, holds in judge.of_story(name, sentences)} == {Verdict.TRUE}


def test_lies_are_found(truth: Truth) -> None:
    judge, known = claims(truth, truth.whole.frames), a_later_one(truth)
    assert known.sequence is not None
    number, packet = known.sequence[2], min(known.crossings)
    before, sight = f"number {number - 1:,}", truth.sights[packet]
    for code, text in (
        ("gap", f"{before} of sequence 1:2 had not been seen on this hop before {number:,}"),
        ("gap-filled", f"{before} of sequence 1:2, not seen before #{packet}, came within 1 s"),
        ("resend", f"it crossed this hop as #{packet - 1}; the capture does not show why"),
        ("late", "by the clock of the capture its time to reach its queue was over 1 s before"),
        ("missing-bytes", "5 bytes before it are not in the capture"),
        ("window-exceeded", "273 messages are not acknowledged; the window is 64"),
        ("ack-beyond-sent", "it acknowledges message 9; the last one sent was 8"),
    ):
        assert {judge.of_finding(Finding(each, code, packet, text)) for each in Severity} == {Verdict.FALSE}
    for sentence in (
        f"It came to its destination, there, which has to hold it: of its sequence, {number - 1:,} never came.",
        "Nothing more was said about it in these captures.",
        "The captures do not show it come.",
        f"It came to its destination, there:1801. Of its sequence, {number - 1:,} were not seen to come.",
        f"of its sequence, {number - 1:,} had not been seen to come: if they had not, there had to hold it",
        f"{sight.source} was seen to send it to {sight.destination} once, and no answer was seen in the 5 s.",
        f"{sight.source} was seen to send it to nobody:1801 once.",
        f"{sight.destination} answered for it, and was not seen to send it on in the 5 s until the captures end.",
        f"came to {sight.destination} again, as a duplicate: it came before, and its receiver has answered for it",
        "a FinalAck of a later message of its sequence said that this one came too",
        "It was refused: nobody likes it.",
    ):
        assert Verdict.FALSE in [holds for _, holds in judge.of_story(known.name, [sentence])]
    assert [holds for _, holds in judge.of_story(known.name, ["It went to the moon."])] == [Verdict.UNCHECKED]


def test_a_message_of_which_the_head_is_there_was_seen(truth: Truth) -> None:
    judge = claims(truth, list(spoil.shortened(truth.whole.frames, 200)))
    sight, message = next(
        (sight, sight.message)
        for sight in judge.said.sights
        if sight.seen.cut_bytes and sight.message is not None and sight.kind in MESSAGES
    )
    name = identifier_text(*message_key(message))
    sentence = f"{sight.source} was seen to send it to {sight.destination} once."
    assert [holds for _, holds in judge.of_story(name, [sentence])] == [Verdict.TRUE]


def test_who_is_called_by_his_guid_is_who_is_called_by_his_address(truth: Truth) -> None:
    judge = claims(truth, truth.whole.frames)
    known = a_later_one(truth)
    number, (source, destination) = next(iter(known.crossings.items()))
    sight = truth.sights[number]
    for one, other in ((sight.source, sight.destination), (key_text(source)[:8], key_text(destination)[:8])):
        sentence = f"{one} was seen to send it to {other} once."
        assert [holds for _, holds in judge.of_story(known.name, [sentence])] == [Verdict.TRUE]
        sentence = f"{other} was seen to send it to {one} once."
        assert [holds for _, holds in judge.of_story(known.name, [sentence])] == [Verdict.FALSE]


def test_who_made_a_sequence_tells_it_from_others_with_the_same_identifier(truth: Truth) -> None:
    judge = claims(truth, truth.whole.frames)
    text = "it is of sequence 1:2, of which the capture has no message"
    acks = [number for number, sight in truth.sights.items() if sight.kind is Kind.ORDER_ACK]
    notes = [Finding(Severity.NOTE, "order-ack-unknown", number, text) for number in acks]
    assert {judge.of_finding(note) for note in notes} == {Verdict.FALSE}
    judge.truth = copy(truth)
    judge.truth.numbered = {(STRANGER, *key[1:]): known for key, known in truth.numbered.items()}
    assert {judge.of_finding(note) for note in notes} == {Verdict.TRUE}


def test_a_number_is_seen_where_the_head_of_its_message_is_there(truth: Truth) -> None:
    judge = claims(truth, list(spoil.shortened(truth.whole.frames, 200)))
    number, transaction = next(
        (sight.seen.number, sight.message.transaction)
        for sight in judge.said.sights
        if sight.seen.cut_bytes and sight.message is not None and sight.message.transaction is not None
    )
    it = f"number {transaction.tx_sequence_number:,} of sequence 1:2"
    for text, holds in (
        (f"{it}, not seen before #{number}, came within 1 s", Verdict.TRUE),
        (f"{it}, not seen before #{number}, came 0.065 s before it", Verdict.TRUE),
        (f"{it}, not seen before #{number + 1}, came within 1 s", Verdict.FALSE),
    ):
        assert judge.of_finding(Finding(Severity.NOTE, "gap-filled", number, text)) is holds


def test_of_what_was_refused_it_may_have_been_said_before_that_it_came(truth: Truth) -> None:
    known = a_later_one(truth)
    coverage = Coverage(truth.whole, truth.whole.frames)
    assert true_of(truth, coverage, known, "refused") == {"refused", "came", "seen to come", "said"}
    silent = replace(known, order_acks=[], final_acks=[], admin_acks=[], covering=[])
    assert true_of(truth, coverage, silent, "refused") == {"refused", "came", "seen to come"}


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_what_somebody_says_to_whom_it_does_not_go_is_not_about_it() -> None:
    scene = Scene()
    wire = scene.wire("a", "b")
    wire.send("a", transactional(1))
    for packet in (ordered(1), final(1), final(2)):
        wire.send("b", packet.replace(guid("c"), guid("b"), 1))
    heard = [wire.send("b", passed_on(packet)).number for packet in (ordered(1), final(1), final(2))]
    sights, _ = scene.sights()
    [known] = messages_in({sight.seen.number: sight for sight in sights}).values()
    assert [*known.said, *known.covering] == heard


def test_what_shows_its_source_alone_may_have_been_another_message_of_that_source(truth: Truth) -> None:
    known, packets = next(
        (known, packets)
        for known in truth.messages.values()
        if len(packets := known.order_acks) > 1
        and any(truth.sights[packet].hop[0] != known.key[0] for packet in packets)
    )
    heads = {truth.whole.packets[packet].frame: packet for packet in packets}

    def cut(size_bytes: int) -> Coverage:
        """Keep only the first `size_bytes` bytes of each packet."""
        frames = []
        for frame in truth.whole.frames:
            place = spoil.placed(frame)
            if frame.number in heads and place is not None:
                kept = place.payload + size_bytes
                frame = frame._replace(data=frame.data[:kept], missing_bytes=len(frame.data) - kept)
            frames.append(frame)
        return Coverage(truth.whole, frames)

    assert fits(truth, cut(HEAD_BYTES + len(known.key[0])), packets)
    assert not fits(truth, cut(64), packets), "they say which messages they are"


def test_what_shows_all_but_its_source_may_have_been_somebody_elses_unless_he_sends_it_himself(
    truth: Truth,
) -> None:
    source_ends = HEAD_BYTES + len(STRANGER)
    pieces = list(spoil.segmented(truth.whole.frames, source_ends))
    for hop_count, holds in ((1, True), (0, False)):
        number = next(
            number
            for known in truth.messages.values()
            for number in known.crossings
            if (message := truth.sights[number].message) is not None
            and message.user.hop_count == hop_count
            and truth.whole.of_frame[truth.whole.packets[number].frame].start
            == truth.whole.spans[number].start
        )
        frame = truth.whole.packets[number].frame
        first = next(piece for piece in pieces if piece.number == frame)
        left = [piece for piece in pieces if piece is not first]
        assert fits(truth, Coverage(truth.whole, left), [number]) is holds
        assert not fits(truth, Coverage(truth.whole, pieces), [number])


def test_not_known_is_right_only_where_the_bytes_may_have_been_others(truth: Truth) -> None:
    known = a_later_one(truth)
    hidden = {
        frame
        for number in known.said
        for frame in range(truth.whole.packets[number].first_frame, truth.whole.packets[number].frame + 1)
    }
    left = [frame for frame in truth.whole.frames if frame.number not in hidden]
    assert fits(truth, Coverage(truth.whole, left), known.said)
    assert not fits(truth, Coverage(truth.whole, truth.whole.frames), known.said)
    # That it came cannot have been otherwise: its destination said so.
    hidden = {truth.whole.packets[number].frame for number in known.arrivals}
    left = [frame for frame in truth.whole.frames if frame.number not in hidden]
    assert not fits(truth, Coverage(truth.whole, left), known.arrivals)


def test_who_is_known_by_a_handshake_or_by_a_message_of_his_own_may_not_have_been_somebody_else(
    truth: Truth,
) -> None:
    manager = Guid(b"g...............")
    telling = [
        sight.seen
        for sight in truth.sights.values()
        if manager in sight.hop
        and (
            isinstance(sight.seen.packet, EstablishConnection)
            or (sight.hop[0] == manager and sight.message is not None and not sight.message.user.hop_count)
        )
    ]
    assert {type(seen.packet) for seen in telling} == {EstablishConnection, UserMessage}
    frames = {place for seen in telling for place in range(seen.first_frame, seen.frame + 1)}
    silent = [frame for frame in truth.whole.frames if frame.number not in frames]
    assert fits_elsewhere(truth, Coverage(truth.whole, silent), manager)
    for seen in telling:
        shown = [frame for frame in truth.whole.frames if frame.number not in frames - {seen.frame}]
        assert not fits_elsewhere(truth, Coverage(truth.whole, shown), manager)


def test_who_lost_frames_may_have_lost_the_last_that_brought_a_message(truth: Truth) -> None:
    known = next(
        known
        for known in truth.messages.values()
        if len(set(known.crossings.values())) == 2 and len(set(known.arrivals)) == 1
    )
    on_its_way = {number: hop for number, hop in known.crossings.items() if number not in known.arrivals}
    assert fits_beyond(truth, replace(known, crossings=on_its_way))
    assert not fits_beyond(truth, known), "nobody sends it on from where it goes"
    first, middle, last = (b"%c..............." % letter for letter in b"gfe")
    (way,) = ways_to(truth, first, last)
    assert [truth.whole.of_frame[frame.number].stream for frame in way] == [
        truth.whole.of_frame[frame.number].stream
        for one, other in ((first, middle), (middle, last))
        for (frame,) in ways_to(truth, one, other)
    ], "by others, too"
    frames = truth.whole.frames
    assert Coverage(truth.whole, list(spoil.lost(frames, 2, 1))).is_lossy
    for spoilt in (frames, frames[50:], frames[:-50], list(spoil.shortened(frames, 300))):
        assert not Coverage(truth.whole, spoilt).is_lossy


def test_decode_and_the_tables_read_the_same_half_of_a_tap_by_its_own_clock(
    truth: Truth, tmp_path: Path
) -> None:
    halves = list(spoil.skewed(spoil.halved(truth.whole.frames), 2_000_000_000, 0, {1}))
    begun = next(place for place, frame in enumerate(halves) if frame.interface.number == 1)
    path = written(tmp_path / "tap.pcapng", halves[begun:])
    first = next(iter(read_packets(str(path))))
    assert decoded([halves[begun:]]).sights[0].seen.time_ns == first.time_ns


def test_a_sniffer_describes_its_interfaces_in_each_file_in_the_same_order(truth: Truth) -> None:
    caught = list(spoil.halved(truth.whole.frames))
    assert is_one_sniffers(Series([caught, caught[2:]]))
    assert not is_one_sniffers(Series([caught, caught[1:]]))
    assert not is_one_sniffers(Series([caught, list(spoil.skewed(caught, -1))]))


def test_what_a_wire_damages_has_a_checksum_wherever_it_was_caught(truth: Truth, tmp_path: Path) -> None:
    """On a loopback interface, no card has computed the frames' checksums, so a damaged copy cannot be recognized."""
    bare = Truth([spoil.summed(frame, by_card=True) for frame in truth.whole.frames])
    files = KINDS["5 % damaged, sent again"](bare.whole.frames, 1)
    assert any("damaged" in frame.comment for frame in files[0])
    assert judged(bare, files, tmp_path / "damaged").complaints == {}


def test_where_the_bytes_of_packets_are_is_known_through_every_way_of_spoiling(truth: Truth) -> None:
    frames = truth.whole.frames
    for spoilt in (
        list(spoil.segmented(spoil.coalesced(frames, 100), 300)),
        list(spoil.delayed(frames, 20)),
        list(spoil.halved(frames)),
        thinned(frames),
    ):
        coverage = Coverage(truth.whole, spoilt)
        assert all(map(coverage.has, truth.whole.spans.values()))
    seen = [sight.seen for sight in truth.decoded.sights if sight.seen.framed]
    originals = Coverage(truth.whole, frames).originals(seen)
    assert all(number == original for number, original in originals.items())
    cut = Coverage(truth.whole, list(spoil.shortened(frames, 96)))
    assert not all(map(cut.has, truth.whole.spans.values()))


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@pytest.mark.parametrize(
    ("seed", "kind", "numbers"), [(108, "bursts lost", {3, 4}), (45, "2 % lost", {*range(3, 9)})]
)
def test_what_may_have_been_passed_over_unseen_is_in_doubt_only_where_a_second_world_fits(
    seed: int, kind: str, numbers: set[int], tmp_path: Path
) -> None:
    one = world(seed, tmp_path).truth
    files = KINDS[kind](one.whole.frames, seed)
    assert judged(one, files, tmp_path / "spoilt").complaints == {}
    said = [known for known in one.messages.values() if known.order_acks]
    spoilt, whole = Coverage(one.whole, files[0]), Coverage(one.whole, one.whole.frames)
    doubted = {each.sequence[2] for each in said if each.sequence and fits_passed_over(one, spoilt, each)}
    assert doubted == numbers
    assert not any(fits_passed_over(one, whole, known) for known in said)


@pytest.mark.long
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_an_order_ack_that_says_too_much_is_found_as_half_of_a_contradiction(tmp_path: Path) -> None:
    code = "order-ack-beyond"
    hunted = dict(hunt(world(10, tmp_path).truth, 10, 2, [code]))
    assert hunted == {code: Hunt(planted=2, there=4, found=2, contradicted=2)}


@pytest.mark.long
def test_where_a_whole_file_is_gone_a_way_by_what_is_lost_does_not_lead_back(tmp_path: Path) -> None:
    one = world(85, tmp_path).truth
    spoilt = Coverage(one.whole, in_order(KINDS["rotated, a file gone"](one.whole.frames, 85)))
    known = one.messages[identifier_text(Guid(b"d..............."), 12)]
    assert fits_passed_over(one, spoilt, known)


@pytest.mark.parametrize(("seed", "kind"), [(2143, "shuffled"), (2816, "rotated, a file gone")])
def test_what_worlds_were_told_wrongly_once_is_told_rightly(seed: int, kind: str, tmp_path: Path) -> None:
    one = world(seed, tmp_path).truth
    assert judged(one, KINDS[kind](one.whole.frames, seed), tmp_path / "spoilt").complaints == {}
