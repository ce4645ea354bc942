"""Judges: what a foreign parser may do, and which findings show the same fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.simulator.fuzz.parser.bounds import TookTooLong
from mqproto.simulator.fuzz.parser.judges import (
    Broken,
    Foreign,
    detail_of,
    find_exceptions,
    find_function,
    group_of,
)


def parse(data: bytes) -> int:
    if len(data) < 4:
        raise ValueError("short")
    if len(data) < 8:
        raise UnicodeError("also a ValueError")
    return data[8]


def test_what_is_expected_is_a_refusal_and_tells_where() -> None:
    judge = Foreign(parse, (ValueError,))
    assert judge.judge(bytes(9)) is None
    assert judge.judge(b"") == judge.judge(b"1") != judge.judge(bytes(5))
    assert judge.counts == {"raises only what is expected": 4, "of these refused": 3}


def test_what_is_not_expected_is_a_finding() -> None:
    with pytest.raises(IndexError):
        Foreign(parse, (ValueError,)).judge_again(bytes(8))


def recurse(data: bytes) -> None:
    recurse(data)


def first(data: bytes) -> int:
    return helper(data)


def second(data: bytes) -> int:
    return helper(data)


def helper(data: bytes) -> int:
    return data[0]


def group(function: object, data: bytes = b"") -> str:
    try:
        Foreign(function, (ValueError,)).judge(data)  # type: ignore[arg-type]
    except (Exception, TookTooLong) as error:
        return group_of(error)
    return "none"


def took_too_long(data: bytes) -> None:
    raise TookTooLong("over 2 s")


def test_faults_are_told_apart_by_exception_and_place_and_caller() -> None:
    assert group(parse, bytes(8)).startswith("IndexError at test_judges.py:")
    assert group(parse, bytes(8)).endswith(" in parse")
    assert group(first) != group(second)
    assert group(first).endswith("in helper, called by first")


def test_where_a_stack_runs_out_or_the_time_is_no_matter() -> None:
    assert group(recurse) == "RecursionError"
    assert group(took_too_long) == "TookTooLong"
    assert group(print.__self__.chr) == "TypeError", "what is not Python has no place"  # type: ignore[attr-defined]


def test_an_answer_that_is_wrong_is_told_apart_by_what_should_hold() -> None:
    assert group_of(Broken("agreement", "yes and no")) == "agreement"
    assert group_of(Broken("agreement", "yes and no", "label")) == "agreement: label"


def test_a_detail_is_one_line() -> None:
    assert detail_of(ValueError("a\n  b")) == "a b"
    assert detail_of(ValueError()) == "it says nothing"
    assert detail_of(Broken("agreement", "yes\nand no")) == "yes and no"
    assert len(detail_of(ValueError("x" * 10_000))) < 400


def test_exceptions_are_found_by_their_names() -> None:
    names = ["ValueError", "struct:error", "mqproto.base.errors:FormatNameError"]
    found = find_exceptions(names)
    assert found[0] is ValueError
    assert found[2] is FormatNameError
    for wrong in ("NoSuchError", "print", "struct:pack"):
        with pytest.raises(UsageError, match=wrong):
            find_exceptions([wrong])


def test_a_module_that_fails_when_it_is_imported_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_a_parser.py").write_text("def read(data:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"half_a_parser:read.*SyntaxError"):
        find_function("half_a_parser:read")


def test_a_parser_in_the_folder_one_is_in_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_parser_of_mine.py").write_text(
        "class Reader:\n    @staticmethod\n    def read(data): return 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["somewhere"])
    assert find_function("a_parser_of_mine:Reader.read")(b"") == 1
