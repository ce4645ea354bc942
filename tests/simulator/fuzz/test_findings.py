"""Findings on disk: whatever is written is read back, and each group has one finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.simulator.fuzz.findings import Findings, FuzzFinding, command, file_of, load, save

FINDING = FuzzFinding(
    group="IndexError at parser.py:12 in soap",
    detail="IndexError: index out of range",
    data=b"\x10\x00LIOR",
    how={"fuzz": "parser", "target": "parser:read", "seed": 7, "expect": ["ValueError"]},
)


def test_a_finding_is_two_files_that_are_read_as_the_same_finding(tmp_path: Path) -> None:
    path = save(FINDING, tmp_path / "new")
    assert path == file_of(FINDING, tmp_path / "new")
    assert path.with_suffix(".bin").read_bytes() == FINDING.data
    assert load(path) == load(path.with_suffix(".bin")) == FINDING
    assert command(FINDING, tmp_path / "new") in path.read_text("utf-8")


VALUES = (
    st.text(max_size=20) | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.lists(st.text(max_size=5))
)


@given(group=st.text(max_size=80), detail=st.text(), data=st.binary(), value=VALUES)
def test_whatever_a_finding_holds_its_file_is_well_formed(
    tmp_path_factory: pytest.TempPathFactory, group: str, detail: str, data: bytes, value: object
) -> None:
    finding = FuzzFinding(group, detail, data, {"value": value})
    assert load(save(finding, tmp_path_factory.getbasetemp() / "any")) == finding


def test_half_a_surrogate_does_not_spoil_the_file(tmp_path: Path) -> None:
    assert load(save(FuzzFinding("\ud800", "\udc00", b""), tmp_path)).detail == "?"


def test_groups_that_look_alike_have_files_of_their_own() -> None:
    names = [
        FuzzFinding(group, "", b"").name for group in ("a: b", "a b", "x" * 100, "x" * 101, "\ud800", "")
    ]
    assert len({*names}) == len(names)


def test_one_of_each_group_is_kept_and_the_others_counted(tmp_path: Path) -> None:
    findings = Findings(tmp_path)
    assert not findings.knows(FINDING.group)
    findings.add(FINDING)
    assert file_of(FINDING, tmp_path).exists(), "at once, as a fuzzer may not live to its end"
    assert findings.knows(FINDING.group)
    findings.close()
    assert len(findings) == 1
    assert "count = 2" in file_of(FINDING, tmp_path).read_text("utf-8")
    assert any("(2 times)" in line for line in findings.lines())
    assert any(command(FINDING, tmp_path) in line for line in findings.lines())
    [entry] = findings.as_json()
    assert (entry["count"], entry["hex"]) == (2, FINDING.data.hex())


def test_without_a_folder_nothing_is_written() -> None:
    findings = Findings()
    findings.add(FINDING)
    findings.close()
    assert not any("repeat with" in line for line in findings.lines())


@pytest.mark.parametrize(
    "text", ["", "group = 1", "not toml", 'data = "finding.bin"\ngroup = ""\nhow = 3\ndetail = ""']
)
def test_a_file_that_is_no_finding_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "finding.toml"
    path.write_text(text)
    path.with_suffix(".bin").write_bytes(b"")
    with pytest.raises(UsageError, match=r"finding\.toml"):
        load(path)


def test_a_finding_that_is_not_there_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        load(tmp_path / "finding.toml")
    path = save(FINDING, tmp_path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(UsageError, match="is not there"):
        load(path)
