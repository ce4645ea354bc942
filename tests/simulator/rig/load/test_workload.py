from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import BODY_LIMIT_BYTES, LABEL_LIMIT, Draft
from mqproto.simulator.rig.load import workload
from mqproto.simulator.rig.load.workload import BATCH_BYTES, BATCH_MESSAGES, as_batches


@pytest.mark.parametrize("sizes", [workload.SIZES, workload.HEAVY])
def test_generated_orders_are_json_of_mixed_sizes_and_the_same_for_the_same_seed(
    sizes: workload.Sizes,
) -> None:
    work = workload.orders(1_000, 3, sizes)
    items = list(work.items())
    assert items == list(work.items())
    assert [item.body for item in items] != [item.body for item in workload.orders(1_000, seed=4).items()]
    numbers = [json.loads(item.body)["order"] if item.body else None for item in items]
    assert all(number in (place, None) for place, number in enumerate(numbers, 1))
    lengths = [len(item.body) for item in items]
    assert min(lengths) == 0
    assert 2**20 <= max(lengths) <= BODY_LIMIT_BYTES
    assert len(set(lengths)) > 300


def test_each_file_below_a_folder_is_a_message_empty_ones_too(tmp_path: Path) -> None:
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / "empty").touch()
    (tmp_path / "b" / "deep" / "one").write_bytes(b"1")
    (tmp_path / "b" / ("ä" * 120)).write_bytes(b"2")
    (tmp_path / "b" / "gone").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").write_bytes(bytes(BODY_LIMIT_BYTES + 1))
    work = workload.from_path(tmp_path)
    items = list(work.items())
    assert {(item.label, item.body) for item in items} == {
        ("empty", b""),
        ("b/deep/one", b"1"),
        ("b/" + "ä" * 120, b"2"),
    }
    assert work.count == len(items)
    [left_out] = work.left_out
    assert "huge" in left_out
    assert f"{BODY_LIMIT_BYTES:,}" in left_out


def test_labels_of_long_paths_fit(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(5):
        folder = folder / ("\N{GRINNING FACE}" * 60)
    folder.mkdir(parents=True)
    (folder / "x").touch()
    [item] = workload.from_path(tmp_path).items()
    Draft(body=item.body, label=item.label).check()
    assert item.label.endswith("/x")
    assert len(item.label) <= LABEL_LIMIT


@given(
    lines=st.lists(
        st.binary(max_size=20).filter(lambda line: b"\n" not in line and not line.endswith(b"\r")), min_size=1
    )
)
def test_each_line_of_a_file_is_a_message(
    lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    work = workload.from_path(path)
    assert [item.body for item in work.items()] == lines
    assert work.count == len(lines)


def test_what_cannot_be_sent_is_said_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "long").write_bytes(bytes(BODY_LIMIT_BYTES + 2))
    (tmp_path / "folder").mkdir()
    for name, words in {
        "empty": "is empty",
        "long": "at most",
        "folder": "no file",
        "absent": "No such file",
    }.items():
        with pytest.raises(UsageError, match=words):
            workload.from_path(tmp_path / name)


@given(st.lists(st.integers(0, BATCH_BYTES // 2 + 1), max_size=600))
def test_batches_keep_the_order_and_fit_a_request(sizes: list[int]) -> None:
    blank = bytes(BATCH_BYTES)
    drafts = [Draft(body=memoryview(blank)[:size]) for size in sizes]  # type: ignore[arg-type]
    batches = list(as_batches(drafts))
    assert [id(draft) for batch in batches for draft in batch] == list(map(id, drafts))
    for batch in batches:
        assert 1 <= len(batch) <= BATCH_MESSAGES
        assert len(batch) == 1 or sum(len(draft.body) for draft in batch) <= BATCH_BYTES
