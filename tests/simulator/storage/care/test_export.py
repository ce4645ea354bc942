"""Each message becomes one line of text that describes its packet for people, and can be turned back into the same
message.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.decode.row import KEYS
from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.care import salvaged
from mqproto.simulator.storage.care.export import Exported, exported, line_of, message_in
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.testing import guids, user_messages
from mqproto.turn.effects import OutgoingRow, QueueKind, QueueRow, Writes
from mqproto.wire import encode_packet
from mqproto.wire.guid import guid_text
from tests.examples import a_transactional_message, a_user_message
from tests.memory import memory_folder
from tests.simulator.storage.batches import (
    NEIGHBOUR,
    NODE,
    ORDER,
    QUEUES,
    SEQUENCE,
    TINY,
    one,
)
from tests.simulator.storage.care.test_repair import change
from tests.simulator.storage.care.test_salvage import killed

packets = user_messages().map(encode_packet) | st.binary(max_size=60)
messages = st.builds(
    Exported,
    st.none() | guids(),
    st.none() | st.sampled_from(QueueKind),
    st.text(),
    st.integers(0, 2**40 - 1),
    st.booleans(),
    packets,
)


def an_export(**changes: Any) -> Exported:
    message = a_user_message(label="a label", body="Gr\u00fc\u00dfe".encode())
    fields = {
        "node": NODE,
        "kind": QueueKind.LOCAL,
        "queue": "orders",
        "position": 7,
        "may_have_left": False,
        "packet": encode_packet(message),
    }
    return Exported(**{**fields, **changes})


def changed(message: Exported, **changes: Any) -> str:
    return json.dumps({**json.loads(line_of(message)), **changes})


@given(message=messages)
def test_any_message_comes_back_as_it_was_and_is_one_line(message: Exported) -> None:
    line = line_of(message)
    assert "\n" not in line
    assert message_in(line) == message
    only = json.loads(line)
    assert (
        message_in(json.dumps({name: only[name] for name in ("packet", "export", "node", "stored")}))
        == message
    )


def test_the_fields_are_those_of_decode_with_the_body_as_text() -> None:
    found = json.loads(line_of(an_export()))
    assert found.keys() - KEYS == {"export", "node", "stored", "packet", "body", "extension"}
    assert (found["label"], found["body"], found["class_name"]) == ("a label", "Gr\u00fc\u00dfe", "NORMAL")
    assert found["stored"] == {"kind": "local", "queue": "orders", "position": 7, "may_have_left": False}
    assert found["node"] == guid_text(NODE)
    noise = json.loads(line_of(an_export(packet=encode_packet(a_user_message(body=b"\xff")))))
    assert (noise["body_base64"], "body" in noise) == ("/w==", False)
    assert json.loads(line_of(an_export(packet=b"no packet")))["fault"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"label": "other"},
            'its label is "other", and its packet says "a label": the packet is what is sent',
        ),
        ({"priority": 7}, "its priority is 7, and its packet says 3"),
        ({"body_base64": "AAAA"}, 'its body_base64 is "AAAA", and its packet says null'),
        ({"fault": "none"}, "its fault is"),
        ({"packet": "abc"}, "it is not a line of `mqproto store export`"),
        ({"packet": None}, "it is not a line of"),
        ({"export": 2}, "it has version 2, and this mqproto knows 1"),
        ({"stored": {}}, "it is not a line of"),
        (
            {"stored": {"kind": "x", "queue": "", "position": 1, "may_have_left": False}},
            "it is not a line of",
        ),
        ({"node": "somebody"}, "it is not a line of"),
    ],
)
def test_a_line_that_somebody_changed_is_refused_and_says_why(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        message_in(changed(an_export(), **changes))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("line", ["", "hello", "[]", "{}", "17", '{"export": 1}', "[" * 5_000])
def test_what_is_no_line_of_an_export_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match=r"it is not a line of `mqproto store export`"):
        message_in(line)


def test_fields_that_a_later_version_adds_are_no_matter() -> None:
    assert message_in(changed(an_export(), colour="green")) == an_export()


def test_a_message_of_a_queue_that_only_the_lost_tables_know_is_exported_all_the_same(tmp_path: Path) -> None:
    path = killed(tmp_path)
    path.unlink()
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        left = [(row.kind, row.queue, row.position, row.may_have_left) for row in exported(found)]
    assert left == [(None, "1", number, True) for number in range(5, 10)]


def test_what_may_have_left_is_said() -> None:
    sequence = OutgoingRow(SEQUENCE, NEIGHBOUR, 1, 1, 0, 5, 1, 2, 3)
    writes = Writes(
        queues=QUEUES,
        messages=[one(number, queue=SEQUENCE) for number in (2, 3, 4)] + [one(9, queue=ORDER)],
        outgoing={SEQUENCE: sequence._replace(sent_ceiling=2)},
    )
    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), NODE, limits=TINY) as store:
        store.commit(writes)
        store.commit(Writes(outgoing={SEQUENCE: sequence}))
        with closing(salvaged(SYSTEM_FILES, store.path)) as found:
            left = {(row.kind, row.position): row.may_have_left for row in exported(found, {SEQUENCE, ORDER})}
    expected = {2: True, 3: True, 4: False}
    assert left == {(QueueKind.SEQUENCE, at): has for at, has in expected.items()} | {
        (QueueKind.ORDER, 9): False
    }


def with_packets(path: Path, count: int) -> None:
    rows = [
        one(number, encode_packet(a_transactional_message(message_id=number)))
        for number in range(1, count + 1)
    ]
    with Store(path, NODE) as store:
        store.commit(Writes(queues=[*QUEUES, QueueRow(99, QueueKind.MET, "peer")], messages=rows))


def test_the_command_exports_all_or_a_queue_to_stdout_or_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "a.sqlite", tmp_path / "a.jsonl"
    with_packets(path, 3)
    assert run_command(["store", "export", str(path)]) == 0
    said = capsys.readouterr()
    assert [message_in(line).position for line in said.out.splitlines()] == [1, 2, 3]
    assert said.err == f"{path}: 3 messages, as of record 1\n"
    for queue, count in (("orders", 3), ("ORDERS", 3), (r"a\orders", 3), ("invoices", 0)):
        assert run_command(["store", "export", str(path), "--queue", queue]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count
    assert run_command(["store", "export", str(path), "--queue", "other"]) == 2
    assert capsys.readouterr().err.endswith("acknowledged, order_queue$, orders, orders, early\n")
    assert run_command(["store", "export", str(path), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 3 messages, as of record 1\n"
    assert (out.read_text("utf-8"), out.stat().st_mode & 0o777) == (said.out, 0o600)
    assert run_command(["store", "export", str(path), "--out", str(out)]) == 2
    assert "it is there already: name another file" in capsys.readouterr().err
    assert run_command(["store", "export", str(path), "--out", str(tmp_path / "x" / "y")]) == 2
    for words in (["check"], ["export"], ["repair"], ["adopt", "--moved"], ["backup", str(tmp_path / "b")]):
        capsys.readouterr()
        assert run_command(["store", words[0], str(tmp_path), *words[1:]]) == 2
        assert capsys.readouterr().err == f"mqproto: {tmp_path} is a folder: name {path}\n"


def test_of_a_hurt_store_what_is_whole_is_exported_and_the_rest_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "a.sqlite", tmp_path / "a.jsonl"
    with_packets(path, 5)
    change(path, "UPDATE message SET packet = CAST('!' || substr(packet, 2) AS BLOB) WHERE message_id = 3")
    assert run_command(["store", "export", str(path), "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert [message_in(line).position for line in out.read_text().splitlines()] == [1, 2, 4, 5]
    assert "the message at 3 with MessageID 3 does not fit its checksum" in said.err
    assert all(line.startswith("mqproto: ") for line in said.err.splitlines())
