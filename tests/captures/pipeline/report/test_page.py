"""The page: whole, harmless, always the same, and complete even if there is little or nothing to report."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.page import FINDINGS_OF_ONE, page
from mqproto.captures.pipeline.report.summary import as_json, lines, story, story_as_json
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import (
    BEGIN_NS,
    Rows,
    capture,
    history,
    hop,
    hops_of,
    made_up,
    sample,
    stream,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;$\\frac{a$\0\x1b[31m\u202e"


class Reader(HTMLParser):
    """A parser that collects the elements of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open and self.open[-1] == "script" else self.texts).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def pictures(text: str) -> list[tuple[str, ElementTree.Element]]:
    """Return each picture, with the text that replaces it for those who cannot see it."""
    found = map(ElementTree.fromstring, re.findall("<svg.*?</svg>", text, re.DOTALL))
    return [(picture.attrib["aria-label"], picture) for picture in found]


@pytest.mark.long
def test_the_same_tables_give_the_same_page(gap_held: Tables, gap_held_page: str) -> None:
    assert gap_held_page == page(gather(Tables(gap_held.folder)))


def test_a_page_needs_no_network_and_no_other_file(gap_held_page: str) -> None:
    reader = read(gap_held_page)
    for _, attributes in reader.elements:
        for name in ("src", "href"):
            if name in attributes:
                assert str(attributes[name]).startswith("#")
    assert not {"link", "img", "image", "use"} & {name for name, _ in reader.elements}


def test_links_within_the_page_lead_somewhere(gap_held_page: str) -> None:
    reader = read(gap_held_page)
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in reader.of("a"):
        target = str(link["href"])[1:]
        assert target.startswith("message=") or target in ids


def test_pictures_say_what_they_show_in_words_and_have_no_colours_of_their_own(gap_held_page: str) -> None:
    found = pictures(gap_held_page)
    assert len(found) == 13
    assert all(
        "style" not in each.attrib and "fill" not in each.attrib for _, one in found for each in one.iter()
    )
    alts = " ".join(alt for alt, _ in found)
    for said in (
        "127.0.0.1 to 127.0.0.2:1801, 9 messages",
        "9 messages source to destination: 50% below 20 ms, 95% below 5.6 s, 99% below 5.6 s, at most 5.81 s.",
        "127.0.0.2:1801 → 127.0.0.3:1801: waited in 127.0.0.2:1801: slow from 01:13:20.800 to 01:13:20.900: 3 messages",
        "8 sessions and pings, over time: most, 8 in 100 ms",
    ):
        assert said in alts
    assert "3–5 for 5.51 s from 01:13:21.102 on" in read(gap_held_page).text


def hostile_rows() -> dict[str, Rows]:
    row = history(1, label=HOSTILE, queue=HOSTILE, whereabouts=HOSTILE, route=[HOSTILE, "b"], file=HOSTILE)
    row |= {"series": HOSTILE, "row_id": 1}
    row |= {"message": f"{HOSTILE}\\1", "administration": [HOSTILE], "administration_ns": [BEGIN_NS]}
    place = {"series": HOSTILE, "source_manager": HOSTILE, "sequence": HOSTILE}
    place |= {"from_key": HOSTILE, "to_key": "b-key"}
    crossed = {"first_ns": BEGIN_NS, "last_ns": BEGIN_NS + 10, "first_number": 1, "last_number": 3}
    counts = {"interface": 0, "messages": 2, "resends": 0, "gaps": 1, "gaps_open": 1}
    gap = {"first_number": 2, "last_number": 2, "opened_by": 1, "opened_ns": BEGIN_NS + 5}
    finding = {"severity": "fault", "code": HOSTILE, "text": HOSTILE, "section": HOSTILE, "series": HOSTILE}
    packet = {
        "series": HOSTILE,
        "framed": True,
        "time_ns": BEGIN_NS,
        "interface": 0,
        "message": row["message"],
        "security_header": True,
        **dict.fromkeys(("sender_kind", "sender_id", "signed", "encrypted"), HOSTILE),
        **dict.fromkeys(("signer", "signature", "decryption"), HOSTILE),
    }
    arrival = {
        "message": row["message"],
        "to_key": "b-key",
        "series": HOSTILE,
        "verdict": HOSTILE,
        "reason": HOSTILE,
    }
    return {
        "captures": [capture(file=HOSTILE, damage=HOSTILE, damage_offset=1)],
        "histories": [row],
        "hops": [
            hop(
                row["message"],
                1,
                "ab",
                BEGIN_NS,
                from_label=HOSTILE,
                from_key=HOSTILE,
                file=HOSTILE,
                series=HOSTILE,
            )
        ],
        "packets": [
            packet | {"row_id": 1, "number": 1, "kind": HOSTILE, "file": HOSTILE, "frame": 1, "size_bytes": 9}
        ],
        "duplicates": [arrival | {"row_id": 1, "number": 1}],
        "findings": [
            finding | {"row_id": 1, "number": 1, "others": [1], "file": HOSTILE, "frame": 1},
            finding | {"number": 0, "severity": HOSTILE},
        ],
        "streams": [stream(1, series=HOSTILE, missing_bytes=1), stream(2, series="other")],
        "clocks": [
            {"series": HOSTILE, "interface": 0, "offset_ns": -5, "packets": 1}
            | {"reference_series": HOSTILE, "reference_interface": 7}
        ],
        "sequences": [place | crossed | {"queue": HOSTILE}],
        "sequence_hops": [place | crossed | counts],
        "gaps": [place | gap],
    }


@pytest.mark.long
def test_what_strangers_wrote_is_text_and_nothing_else(tmp_path: Path) -> None:
    facts = gather(made_up(tmp_path / "out", hostile_rows()))
    text = page(facts)
    reader = read(text)
    assert len(reader.of("script")) == len(reader.scripts) == 2
    for _, attributes in reader.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    assert "alert(1)" in reader.text
    assert not re.search(r"[\0-\x09\x0b-\x1f\u202e]", text)
    data = json.loads(reader.scripts[0])
    assert any("alert(1)" in word for word in data["words"])
    drawn = {element.tag for _, picture in pictures(text) for element in picture.iter()}
    assert drawn == {"svg", "g", "path", "rect", "text"}
    row = facts.messages.embedded[0]
    for line in (*lines(facts), *story(row, facts.messages.stories[row["message"]])):
        assert line.isprintable()
    told = story_as_json(row, facts.messages.stories[row["message"]])
    assert told["verdict"].isprintable()
    assert all(step["what"].isprintable() for step in told["steps"])


def test_the_browser_may_run_the_script_of_the_page_and_no_other(gap_held_page: str) -> None:
    reader = read(gap_held_page)
    policy = next(each["content"] for each in reader.of("meta") if "http-equiv" in each)
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src ")
    assert "unsafe" not in policy


def embedded_messages(reader: Reader) -> list[dict[str, Any]]:
    data = json.loads(reader.scripts[0])
    return [dict(zip(data["columns"], values, strict=True)) for values in data["messages"]]


def test_a_message_is_embedded_with_its_way_and_times_that_javascript_holds(tmp_path: Path) -> None:
    row = history(1)
    tables = made_up(tmp_path / "out", {"histories": [row], "hops": hops_of(row)})
    reader = read(page(gather(tables)))
    [message] = embedded_messages(reader)
    words = json.loads(reader.scripts[0])["words"]
    assert words[message["label"]] == "order 1"
    begin_us = row["first_ns"] // 1_000
    assert message["first"] == begin_us < 2**53
    steps = [
        (us, *(words[each] if place != 1 else each for place, each in enumerate(said)))
        for us, said, *_ in message["steps"]
    ]
    assert steps == [
        (begin_us, "went from a to b"),
        (begin_us + 1_000, "b answered for it"),
        (begin_us + 5_000, "went from b to c, its destination, after it waited", 5_000, ""),
        (begin_us + 9_000, "its source got the OrderAck"),
    ]
    assert [step[2:] for step in message["steps"]] == [
        [words.index("day.pcapng"), 11],
        [],
        [words.index("day.pcapng"), 12],
        [],
    ]


def test_of_too_many_messages_the_page_says_which_command_finds_any(tmp_path: Path) -> None:
    rows = [history(number) for number in range(30)]
    for row in rows[10:]:
        row |= {"latency_ns": 0, "order_acked_ns": None}
    tables = made_up(tmp_path / "my tables", {"histories": rows})
    reader = read(page(gather(tables, embedded_limit=29)))
    assert "This page has 10 of 30 messages" in reader.text
    assert f"mqproto report '{tables.folder}' --find LABEL" in reader.text
    assert len(embedded_messages(reader)) == 10


NOTHING: dict[str, Rows] = {"captures": []}
NO_MESSAGES: dict[str, Rows] = {"captures": [capture(frames=5, other_frames=5)], "histories": [], "hops": []}
NOT_READ: dict[str, Rows] = {
    "captures": [capture(frames=5, other_frames=5, other_reasons=[("ESP, which is not read", 5)])]
}
ONE_PACKET: dict[str, Rows] = {
    "captures": [capture(frames=1, last_ns=BEGIN_NS)],
    "packets": [
        {
            "series": "x",
            "row_id": 1,
            "number": 1,
            "framed": True,
            "time_ns": BEGIN_NS,
            "kind": "Ping",
            "size_bytes": 4,
        }
    ],
}
ONE_HOP: dict[str, Rows] = {
    "histories": [history(1, hops=1, latency_ns=0, route=["a", "b"])],
    "hops": [hop("A-GUID\\1", 1, "ab", BEGIN_NS)],
}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (NOTHING, ["0 captures", "no message of an application", "Nothing was found to be wrong"]),
        (NOT_READ, ["No findings in what was read; 5 frames are ESP, which is not read."]),
        (
            NO_MESSAGES,
            ["no message of an application", "no packets of message queuing", "No message crossed"],
        ),
        (ONE_PACKET, ["no message of an application", "Ping"]),
        (ONE_HOP, ["1 message", "seen on one hop alone", "no hop is known to have lacked a number"]),
    ],
    ids=["nothing", "not read", "no messages", "one packet", "one hop"],
)
def test_where_there_is_little_to_say_the_page_says_so(
    rows: dict[str, Rows], said: list[str], tmp_path: Path
) -> None:
    facts = gather(made_up(tmp_path / "out", rows))
    reader = read(page(facts))
    for text in said:
        assert text in reader.text
    assert all(line.isprintable() for line in lines(facts))
    json.dumps(as_json(facts))


def rows_of(text: str, section: str) -> list[str]:
    """Return the text of each row in the last table of a section, except for header rows."""
    part = text.partition(f'<section id="{section}">')[2].partition("</section>")[0].rpartition("<table")[2]
    return [read(row).text for row in re.findall("<tr(?: data[^>]*)?>.*?</tr>", part)]


def test_the_page_has_every_time_in_which_something_was_slow_the_longest_first(tmp_path: Path) -> None:
    slow_s = {5, *range(10, 14), 20, 30, 31, 40, 50, 58, 59}
    messages = [
        history(second, first_ns=BEGIN_NS + second * 10**9, latency_ns=10**9 if second in slow_s else 10**6)
        for second in range(60)
    ]
    rows: dict[str, Rows] = {"captures": [capture(last_ns=BEGIN_NS + 60 * 10**9)], "histories": messages}
    found = rows_of(page(gather(made_up(tmp_path / "out", rows))), "slow")
    lengths = [" ".join(row.split()[-4:]) for row in found]
    assert lengths == ["4 s 4 –", *["2 s 2 –"] * 2, *["1 s 1 –"] * 4]
    assert found[0].startswith("PRIVATE=C-GUID\\00000001: source to destination 2023-11-14 22:13:30.000 ")


def test_a_queue_of_which_no_time_is_known_has_no_empty_picture(tmp_path: Path) -> None:
    row = history(1, hops=1, latency_ns=None, order_acked_ns=None, delivery="express", outcome="reached")
    text = page(gather(made_up(tmp_path / "out", {"captures": [capture()], "histories": [row]})))
    assert rows_of(text, "queues") == ["PRIVATE=C-GUID\\00000001 – 1 0 0 –"]


def test_who_sends_again_is_said_by_host(gap_held_page: str) -> None:
    assert rows_of(gap_held_page, "routes") == ["127.0.0.1 9 7 78 % 7", "127.0.0.2:1801 9 4 44 % 4"]


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (["new", "new"], "no copy of a message was seen to come to a queue manager that had it."),
        (
            ["new", "duplicate"],
            "1 further copy of messages and acknowledgments came to a queue manager that had them and had answered",
        ),
        (
            ["new", "duplicate", "in doubt", "in doubt"],
            "3 further copies of messages and acknowledgments came to a queue manager that had them; it had answered",
        ),
    ],
)
def test_a_sentence_says_whether_messages_came_exactly_once(
    verdicts: list[str], said: str, tmp_path: Path
) -> None:
    arrivals = [
        {"message": "A-GUID\\1", "to_key": "b-key", "verdict": verdict, "row_id": place, "number": place}
        for place, verdict in enumerate(verdicts)
    ]
    text = page(gather(made_up(tmp_path / "out", {"histories": [history(1)], "duplicates": arrivals})))
    assert f"Exactly once: {said}" in read(text).text


def test_of_every_message_that_failed_it_is_said_why(tmp_path: Path) -> None:
    reasons = {"NACK_BAD_DST_Q": "its queue does not exist", "NACK_Q_EXCEED_QUOTA": "its queue was full"}
    messages = [
        history(number, outcome="refused", final_class=name)
        for number, name in enumerate([*reasons] * 15 + ["NACK_BAD_DST_Q"])
    ]
    messages.append(
        history(99, outcome="refused", administration=["NACK_ACCESS_DENIED"], administration_ns=[BEGIN_NS])
    )
    text = page(gather(made_up(tmp_path / "out", {"histories": messages})))
    assert (
        "16 refused: its queue does not exist; 15 refused: its queue was full; "
        "1 refused: its sender may not send to the queue. The earliest come first."
    ) in read(text).text
    rows = rows_of(text, "worst")
    assert len(rows) == 32
    assert all("It was refused: its " in row for row in rows)


@pytest.mark.long
@pytest.mark.parametrize("name", ["pings", "multiple-destinations"])
def test_samples_of_all_sorts_give_a_page(name: str, tmp_path: Path) -> None:
    facts = gather(sample(name, tmp_path))
    assert len(embedded_messages(read(page(facts)))) == facts.messages.count


@pytest.mark.long
def test_a_map_of_many_queue_managers_keeps_within_its_picture(tmp_path: Path) -> None:
    chain = "abcdefghijklmnopqrst"
    ends = [*map("".join, pairwise(chain)), "ba", "aa", "uz", "vz", "wz", "yz"]
    hops = [hop(f"A-GUID\\{number}", 1, each, BEGIN_NS + number) for number, each in enumerate(ends)]
    text = page(gather(made_up(tmp_path / "out", {"hops": hops})))
    [(alt, picture)] = [each for each in pictures(text) if each[0].startswith("Route map")]
    assert alt.startswith("Route map: a to b, 1 message; ")
    assert "The map has 14 of 25 hops" in text
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    labels = [*picture.iter("text")]
    assert {"a", "b", "c"} <= {element.text for element in labels}
    for element in labels:
        assert 0 <= float(element.attrib["x"]) <= width
        assert 0 <= float(element.attrib["y"]) <= height


def test_every_message_has_its_findings_where_all_can_be_looked_up(
    gap_held: Tables, gap_held_page: str
) -> None:
    reader = read(gap_held_page)
    data = json.loads(reader.scripts[0])
    found = sum(len(message["findings"]) for message in embedded_messages(reader))
    assert found == gap_held.rows("findings") == 13
    assert not data["partial"]
    assert "The first 10 of 11." in reader.text
    frames = {row["number"]: row["frame"] for row in gap_held.read("packets").to_pylist()}
    earlier = gap_held.read("findings").to_pylist()[0]["others"][0]
    assert f"with #{earlier}: frame.number == {frames[earlier]} " in f"{reader.text} "


def test_of_a_message_with_very_many_findings_some_are_told_and_the_page_says_so(tmp_path: Path) -> None:
    row = history(1)
    packet = {
        "series": "day.pcapng",
        "row_id": 1,
        "number": 1,
        "framed": True,
        "time_ns": BEGIN_NS,
        "size_bytes": 9,
    }
    finding = {
        "severity": "note",
        "code": "resend",
        "text": "again",
        "series": "day.pcapng",
        "row_id": 1,
        "number": 1,
    }
    for count, is_partial in ((FINDINGS_OF_ONE, False), (FINDINGS_OF_ONE + 1, True)):
        rows: dict[str, Rows] = {
            "captures": [capture()],
            "histories": [row],
            "packets": [packet | {"message": row["message"], "kind": "Transactional"}],
            "findings": [finding] * count,
        }
        reader = read(page(gather(made_up(tmp_path / str(count), rows))))
        [message] = embedded_messages(reader)
        assert len(message["findings"]) == FINDINGS_OF_ONE
        assert json.loads(reader.scripts[0])["partial"] == is_partial
