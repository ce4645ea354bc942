"""Our readers of bodies under fire: nothing is found in them, and every planted fault is."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from mqproto.bodies import Body, UnexplainedError, read_body, read_headers, write_body
from mqproto.simulator.fuzz.parser import pasting, readers
from mqproto.simulator.fuzz.parser.fuzzer import Options, Report, fuzz_parser, material_of
from mqproto.simulator.fuzz.parser.judges import Broken
from mqproto.simulator.fuzz.parser.readers import TARGETS
from mqproto.wire import Inspection, inspect_packet

PACKETS: Final = int(os.environ.get("MQPROTO_READER_PACKETS", "4000"))


def run(target: str, packets: int, seed: int = 0) -> Report:
    return fuzz_parser(Options(target=target, packets=packets, seconds=3_600, seed=seed))


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_our_readers_do_nothing_wrong(target: str) -> None:
    report = run(target, PACKETS)
    assert report.findings.lines() == []
    assert list(report.questions.values()) == [PACKETS]
    assert report.ways > 10
    assert 0 < report.slowest_s < 2
    assert report.memory_mb >= report.memory_before_mb > 0


@pytest.mark.parametrize("target", TARGETS)
def test_every_seed_and_what_is_drawn_is_valid(target: str) -> None:
    kinds = set()
    material = TARGETS[target].material
    dice = random.Random(5)
    for data in [*material.seeds, *(material.generated(dice) for _ in range(100))]:
        if target == "headers":
            found = read_headers(data)
            kinds.add(found.sender if found else "none")
        else:
            way = TARGETS[target].ask(data)
            kinds.add(str(way[0]) if isinstance(way, tuple) else f"refused: {way}")
    assert not (target == "decode" and kinds - {"True", "False"}), kinds
    unpublished = {"refused: body type xf has no published form"} if target == "activex" else set()
    assert {kind for kind in kinds if kind.startswith("refused")} == unpublished
    assert len(kinds) >= {"binary": 1, "headers": 3, "security": 3, "decode": 2}.get(target, 6)
    assert "none" not in kinds


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (lambda body, body_type: [][0], IndexError),
        (lambda body, body_type: Body("bytes", body, "two\nlines"), Broken),
        (lambda body, body_type: Body("bytes", body[1:], "why"), Broken),
        (lambda body, body_type: Body("xml", "half a pair: \ud800"), UnicodeEncodeError),
        (lambda body, body_type: replace(read_body(body, body_type), kind="xml:int"), (Broken, ValueError)),
    ],
)  # fmt: skip
def test_a_reader_that_is_wrong_is_found(
    planted: object, found: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "read_body", planted)
    body, _ = write_body("text", "xml")
    with pytest.raises(found):
        TARGETS["xml"].ask(body)


def test_what_is_written_otherwise_than_it_was_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "write_body", lambda value, kind: write_body([value], "xml"))
    assert "round trip: xml:ArrayOfInt" in run("xml", 500).findings.first


def test_a_reader_that_raises_what_is_no_reason_is_found_and_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planted(extension: bytes) -> None:
        if b"Key" not in extension[:100] and b"<" in extension:
            raise UnexplainedError("headers are found or not; nothing is raised")

    monkeypatch.setattr(readers, "read_headers", planted)
    [finding] = run("headers", 1_000).findings.first.values()
    assert finding.group.startswith("UnexplainedError")
    assert finding.data == b"<"


def test_inputs_of_ones_own_come_first_and_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(b"<own/>")
    material = material_of(Options(target="xml", corpus=(tmp_path / "own",)))
    assert material.seeds[0] == b"<own/>"
    assert len(material.seeds) > 10


@pytest.mark.parametrize(
    ("planted", "group"),
    [
        (lambda data: iter([(1, inspect_packet(data))]), "stream"),
        (lambda data: iter([(0, inspect_packet(data[:-1]))]), "stream"),
        (lambda data: iter([(0, Inspection())]), "stream"),
    ],
)
def test_a_stream_of_which_not_all_is_shown_is_found(
    planted: object, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pasting, "inspect_stream", planted)
    assert list(run("decode", 5).findings.first) == [group]


def test_a_guard_that_believes_what_nobody_has_signed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS["security"]
    [signed, *_] = [data for data in target.seeds() if b"a secret body" in data]
    forged = signed.replace(b"a secret body", b"a forged body")
    assert target.ask(signed) == (False, True, 3)
    assert target.ask(forged) != (False, True, 3)
    monkeypatch.setattr("mqproto.security.signing.verify", lambda *_: None)
    with pytest.raises(Broken, match="nobody has signed this"):
        target.ask(forged)
