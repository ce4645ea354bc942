"""Fuzzing a parser: ours resists, each class of bug that broke Microsoft's parser is found, and a seed repeats
everything.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.fuzz.findings import FuzzFinding, command, file_of, load
from mqproto.simulator.fuzz.parser import fuzzer as fuzzing
from mqproto.simulator.fuzz.parser.fuzzer import Options, Report, fuzz_parser, repeat
from mqproto.simulator.fuzz.parser.seeds import a_ping, examples
from tests.simulator.fuzz import planted

SEEN: list[bytes] = []


def remember(data: bytes) -> None:
    """A target that only remembers its inputs."""
    SEEN.append(data)


def stumble(data: bytes) -> None:
    """A target that cannot even read valid input."""
    raise KeyError(data[:1])


def exit_early(data: bytes) -> None:
    """A target that ends its caller's process."""
    if len(data) < 16:
        raise SystemExit(3)


def panic(data: bytes) -> None:
    """A target that fails beyond Exception, as a panic of Rust does."""
    raise BaseException(data[:0])


def forgetful(data: bytes) -> None:
    """A target that fails once: its result depends on earlier calls."""
    SEEN.append(data)
    if len(SEEN) == 50:
        raise KeyError("\x1b[31mred")


def target(name: str) -> str:
    return f"{__name__}:{name}"


def run(name: str, folder: Path | None = None, **options: object) -> Report:
    defaults = {"target": name, "packets": 15_000, "seconds": 60, "folder": folder}
    return fuzz_parser(Options(**defaults | options))  # type: ignore[arg-type]


def only(report: Report) -> FuzzFinding:
    [finding] = report.findings.first.values()
    return finding


def found_and_repeated(name: str, memory_mb: int) -> tuple[FuzzFinding, object]:
    """Return the only finding, and the result of repeating it."""
    finding = only(run(name, memory_mb=memory_mb))
    return finding, repeat(finding)


@pytest.mark.long
def test_our_own_codec_does_nothing_wrong() -> None:
    report = run(fuzzing.OURS, packets=25_000)
    assert report.findings.lines() == []
    assert report.packets == sum(report.kinds.values()) == 25_000
    assert report.questions["decodes or is refused"] == 25_000
    assert all(count > 150 for count in report.questions.values()), "each question is asked of many"
    assert report.ways > 80


@pytest.mark.parametrize("bug", planted.CLASSES, ids=lambda bug: bug.__name__)
@pytest.mark.parametrize("seed", [0, 1])
def test_each_class_of_bug_that_broke_parsers_is_found_minimised_and_repeated(
    bug: planted.Bug, seed: int, tmp_path: Path
) -> None:
    name = f"{planted.__name__}:{bug.__name__}"
    report = run(name, tmp_path, seed=seed)
    assert report.seconds < 60
    for finding in report.findings.first.values():
        assert finding.group.startswith("AccessViolation")
        assert len(finding.data) <= planted.LEAST[bug], finding.how["mutation"]
        with pytest.raises(planted.AccessViolation):
            bug(finding.data)
        again = load(file_of(finding, tmp_path))
        assert repeat(again) == (finding.group, finding.detail)
    assert report.findings.first


@pytest.mark.long
def test_memory_that_a_packet_announces_is_a_finding() -> None:
    """This runs in a separate process, because the limit would be small compared to the memory that other tests use in
    this one.

    The limit, 100 MB, is not a power of two: no count with a single nonzero byte announces exactly that size.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        name = f"{planted.__name__}:preallocated"
        finding, repeated = alone.submit(found_and_repeated, name, memory_mb=100).result()
    assert finding.group.startswith("MemoryError at planted.py")
    assert len(finding.data) <= planted.LEAST[planted.counted]
    assert repeated == (finding.group, finding.detail)


@pytest.mark.long
def test_a_parser_that_comes_to_no_end_is_stopped_and_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "MINIMISE_S", 1.0)
    report = run(f"{planted.__name__}:endless", limit_s=0.2, seconds=0.1)
    finding = only(report)
    assert finding.group == "TookTooLong"
    assert finding.how["mutation"] == "unmutated"
    assert len(finding.data) < 40, "what is left is the head"
    assert repeat(finding) == (finding.group, finding.detail)


@pytest.mark.parametrize(("name", "kind"), [("exit_early", "SystemExit"), ("panic", "BaseException")])
def test_a_parser_that_ends_the_process_does_not_end_the_fuzzer(name: str, kind: str) -> None:
    assert only(run(target(name))).group.startswith(kind)


def test_what_fails_with_the_unmutated_packet_is_found_first() -> None:
    finding = only(run(target("stumble"), packets=100))
    assert finding.how["mutation"] == "unmutated"
    assert finding.how["packet"] == 1
    assert finding.data == b""


def test_a_parser_that_refuses_every_valid_packet_is_the_wrong_one() -> None:
    with pytest.raises(UsageError, match="refuses every valid packet"):
        run(target("stumble"), expect=("KeyError",))


def test_a_finding_that_does_not_say_how_it_came_about_cannot_be_repeated() -> None:
    with pytest.raises(UsageError, match="target"):
        repeat(FuzzFinding("group", "detail", b"", {"fuzz": "parser"}))


def test_it_ends_after_the_seeds_if_there_may_be_no_more_packets() -> None:
    assert run(target("remember"), packets=3).packets == len(examples()) + 2


def test_a_finding_that_does_not_show_again_says_so() -> None:
    SEEN.clear()
    report = run(target("forgetful"), packets=100)
    finding = only(report)
    assert "did not show again" in report.findings.lines()[-1]
    assert finding.detail == r"'\x1b[31mred'"
    assert repeat(finding) is None


def test_the_same_seed_makes_the_same_packets_and_another_seed_others() -> None:
    def packets(seed: int) -> list[bytes]:
        SEEN.clear()
        run(target("remember"), seed=seed, packets=25_000)
        return SEEN.copy()

    first = packets(1)
    assert first[: len(examples())] == examples(), "the unmutated ones come first"
    assert a_ping() in first
    assert packets(1) == first
    assert packets(2) != first


def test_packets_of_ones_own_come_before_the_others(tmp_path: Path) -> None:
    (tmp_path / "hex").write_text(examples()[3].hex())
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "finding.bin").write_bytes(b"broken")
    (tmp_path / "folder" / "finding.toml").write_text("about it")
    SEEN.clear()
    run(target("remember"), corpus=(tmp_path / "hex", tmp_path / "folder"), packets=20)
    assert SEEN[:2] == [examples()[3], b"broken"]


def test_it_stops_in_time_and_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=partial(next, count(step=0.001)))
    monkeypatch.setattr(fuzzing, "time", clock)
    told: list[float] = []
    report = fuzz_parser(
        Options(target=target("remember"), seconds=3.5), lambda report: told.append(report.seconds)
    )
    assert told == pytest.approx([1, 2, 3], abs=0.1)
    assert report.seconds == pytest.approx(3.5, abs=0.1)
    assert report.rate > 0


def test_ctrl_c_ends_it_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(data: bytes) -> None:
        SEEN.append(data)
        if len(SEEN) > 40:
            raise KeyboardInterrupt

    SEEN.clear()
    monkeypatch.setattr(fuzzing, "find_function", lambda target: interrupt)
    report = run("any:any")
    assert report.interrupted
    assert report.packets == 41


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("planted", "module:function"),
        ("no_such_module:f", "no_such_module"),
        ("struct:no_such_function", "no_such_function"),
        ("struct:__name__", "cannot be called"),
    ],
)
def test_a_target_that_is_none_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(name)


def test_the_command_that_repeats_a_finding_is_in_the_report(tmp_path: Path) -> None:
    report = run(target("exit_early"), tmp_path)
    assert any(command(only(report), tmp_path) in line for line in report.findings.lines())
