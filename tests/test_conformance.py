"""Citations in code and tests agree with conformance.toml."""

from __future__ import annotations

import pytest

from tests import conformance
from tests.conformance import cited_in_markers, cited_in_text

RULES = "[MS-MQQB] 3.1."


def test_every_section_has_a_known_status_and_gives_its_reason_if_not_done() -> None:
    for section, line in conformance.load()["sections"].items():
        assert conformance.CITATION.fullmatch(section), f"{section!r}: write it as [MS-MQQB] 3.1.5.6"
        assert line["status"] in conformance.STATUSES, f"{section}: status is one of {conformance.STATUSES}"
        assert line["status"] == "done" or line.get("reason"), f"{section} is {line['status']}: say why"


def test_every_cited_rule_has_its_line() -> None:
    sections = conformance.load()["sections"]
    cited = [*conformance.in_code(), *conformance.in_tests()]
    missing = [c for c in cited if c.section.startswith(RULES) and c.section not in sections]
    assert not missing, "cited, but not in conformance.toml: " + ", ".join(
        f"{citation.section} ({citation.where})" for citation in missing
    )


def test_every_section_that_is_done_has_a_test_that_names_it() -> None:
    tested = {citation.section for citation in conformance.in_tests()}
    sections = conformance.load()["sections"]
    untested = [name for name, line in sections.items() if line["status"] == "done" and name not in tested]
    assert not untested, f"done, but without a @pytest.mark.spec: {', '.join(untested)}"


def test_every_reading_answers_its_question_and_is_pinned_by_a_test_that_exists() -> None:
    known = conformance.names_of_tests()
    for reading in conformance.load()["reading"]:
        assert reading["question"], reading
        assert reading["answer"], reading
        assert reading["sections"], reading
        tests = reading["test"] if isinstance(reading["test"], list) else [reading["test"]]
        assert set(tests) <= known, f"{reading['question']!r} is pinned by {tests}; no such test"


def test_every_marker_names_sections_as_we_write_them() -> None:
    odd = [c for c in conformance.in_tests() if not conformance.CITATION.fullmatch(c.section)]
    assert not odd, f'write @pytest.mark.spec("[MS-MQQB] 3.1.5.6"), one marker for each section: {odd}'


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("The answer.  [MS-MQQB] 3.1.5.3.1, 3.1.5.4", ["[MS-MQQB] 3.1.5.3.1", "[MS-MQQB] 3.1.5.4"]),
        ("by [MS-MQQB] 2.2.4 and 3.1.2.7.", ["[MS-MQQB] 2.2.4", "[MS-MQQB] 3.1.2.7"]),
        ('Rule("3.1.5.5", take)  # (3.1.6.9)', ["[MS-MQQB] 3.1.5.5", "[MS-MQQB] 3.1.6.9"]),
        ("keyed by it: [MS-MQDMPR] 3.1.1.5, not 3.1.1.6", ["[MS-MQDMPR] 3.1.1.5", "[MS-MQQB] 3.1.1.6"]),
        ("Python 3.11.7, 127.0.0.1, version 13.1.2, 0.3.1.4 and 3.1", []),
        ("[MS-MQQB] 3.1.5.3\nto 3.1.5.8", ["[MS-MQQB] 3.1.5.3", "[MS-MQQB] 3.1.5.8"]),
    ],
)
def test_citations_are_found_in_text_however_they_are_listed(text: str, sections: list[str]) -> None:
    assert [section for section, _ in cited_in_text(text)] == sections


def test_markers_are_found_wherever_they_stand_and_a_computed_one_is_not_overlooked() -> None:
    text = """
pytestmark = pytest.mark.spec("[MS-MQQB] 3.1.5.5")

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.spec("[MS-MQMQ] 2.2.19"))])
@pytest.mark.spec(f"[MS-MQQB] {section}")
def test_it(n): ...
"""
    assert list(cited_in_markers(text)) == [("[MS-MQQB] 3.1.5.5", 2), ("?", 5), ("[MS-MQMQ] 2.2.19", 4)]


def test_the_summary_counts_every_section_once() -> None:
    counts = [int(word) for word in conformance.summary().split() if word.isdigit()]
    assert sum(counts) == len(conformance.load()["sections"])
