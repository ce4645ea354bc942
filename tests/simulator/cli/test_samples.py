"""The samples: each is what its TOML says, and the command in that TOML makes it again, byte for byte."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from mqproto.base.errors import MqprotoError
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.packets import PacketReader
from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.cli.samples import MARK, as_toml, found_in, make, make_all
from mqproto.simulator.fuzz.tactics.malformed import hostile_packets
from mqproto.simulator.world.scenarios.scenario import Scenario, from_file, guid_of
from tests.conformance import ROOT

SAMPLES = ROOT / "captures" / "samples"
NAMES = sorted(path.stem for path in SAMPLES.glob("*.toml"))
LARGEST_BYTES = 200_000


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all samples, made again from nothing but their TOML files."""
    folder = tmp_path_factory.mktemp("samples")
    for name in NAMES:
        shutil.copy(SAMPLES / f"{name}.toml", folder)
    assert sorted(make_all(folder)) == NAMES
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_made_again_byte_for_byte(name: str, again: Path) -> None:
    assert (again / f"{name}.pcapng").read_bytes() == (SAMPLES / f"{name}.pcapng").read_bytes()
    assert (again / f"{name}.toml").read_text("utf-8") == (SAMPLES / f"{name}.toml").read_text("utf-8")


def test_keys_lie_beside_what_they_open_and_prove_and_say_that_they_are_no_secret(
    again: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = SAMPLES / "protected.keys"
    names = sorted(path.name for path in keys.iterdir())
    assert names == sorted(path.name for path in (again / "protected.keys").iterdir())
    for name in names:
        assert (again / "protected.keys" / name).read_bytes() == (keys / name).read_bytes()
    assert "published on purpose. It protects nothing." in (keys / "24_destination.pem").read_text("ascii")
    assert run_command(["decode", str(SAMPLES / "protected.pcapng"), "--keys", str(keys), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = Counter(
        (row["label"], row["verified"], row["plain_bytes"]) for row in rows if row["kind"] == "Transactional"
    )
    assert told == {
        ("in clear", None, None): 2,
        ("signed", True, None): 4,
        ("encrypted", None, 40): 4,
        ("both", True, 40): 4,
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_what_its_toml_says(name: str) -> None:
    told = tomllib.loads((SAMPLES / f"{name}.toml").read_text("utf-8"))
    assert set(told) - {"scenario"} == {"title", "shows", "command", "found"}
    assert f"{name}.pcapng" in told["command"]
    assert found_in(SAMPLES / f"{name}.pcapng") == {"found": told["found"]}
    assert told["found"]["size_bytes"] < LARGEST_BYTES


FINDINGS = {
    "gap-held": {"gap", "gap-filled", "resend"},
    "hostile": {"malformed"},
    "intermediate-killed": {"resend"},
    "loss-and-reordering": {"missing-bytes", "caller-by-port"},
    "resent": {"resend"},
}
"""The findings that `mqproto decode` has to report for each sample; for all other samples, it reports none."""


@pytest.mark.parametrize("name", NAMES)
def test_what_a_sample_shows_is_found_in_it_and_nothing_else(name: str) -> None:
    found = tomllib.loads((SAMPLES / f"{name}.toml").read_text("utf-8"))["found"]
    assert set(found.get("findings", {})) == FINDINGS.get(name, set())


def test_there_are_samples_and_no_captures_that_nobody_can_make() -> None:
    assert len(NAMES) >= 10
    assert sorted(path.stem for path in SAMPLES.glob("*.pcapng")) == NAMES


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"loss-and-reordering"}))
def test_of_an_unspoiled_sample_every_byte_belongs_to_a_packet(name: str) -> None:
    reader = PacketReader(read_capture(SAMPLES / f"{name}.pcapng"))
    malformed = [packet for packet in reader if packet.fault is not None]
    totals = reader.totals
    assert (
        totals.missing_bytes
        == totals.gap_count
        == totals.other_bytes
        == sum(totals.other_frames.values())
        == 0
    )
    if name != "hostile":
        assert malformed == []
        assert totals.skipped_bytes == totals.cut_bytes == 0


def test_the_hostile_sample_has_every_hostile_packet_in_a_connection_of_its_own() -> None:
    scenario: Scenario = from_file(SAMPLES / "hostile.toml")
    values = [fault.value for fault in scenario.faults if fault.kind == "hostile"]
    stranger = guid_of("stranger")
    packets = list(hostile_packets(stranger, guid_of("destination")).values())
    assert values == list(range(len(packets)))
    comments = [frame.comment for frame in read_capture(SAMPLES / "hostile.pcapng") if frame.comment]
    assert len(comments) == len(set(comments)) == len(scenario.faults)


def test_a_sample_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text('command = "tshark -r broken.pcapng"\n', "utf-8")
    with pytest.raises(MqprotoError, match=r"^broken\.toml: nobody knows how to run `tshark"):
        make(file)
    file.write_text('command = "mqproto simulate --scenario broken.toml"\n', "utf-8")
    with pytest.raises(MqprotoError, match=r"^broken\.toml: `mqproto simulate .* ended with status 2"):
        make(file)


def test_what_was_found_is_written_as_toml() -> None:
    tables = {"found": {"frames": 3, "sha256": "ab", "packets": {"SessionAck": 1}}}
    assert tomllib.loads(as_toml(tables)) == tables
    assert MARK.startswith("#")
