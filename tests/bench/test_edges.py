from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench import edges
from tests.bench.figures import BenchError, Options
from tests.bench.load.stage import DELIVERERS, SERVERS, Measured, check
from tests.bench.programs.accepting import Accepting
from tests.memory import memory


@pytest.mark.long
@pytest.mark.usefixtures("short_lives")
async def test_edges_are_measured_beside_programs_without_messaging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "places", lambda: {"memory": memory()})
    monkeypatch.setattr(edges, "QUICK_SECONDS", 0.05)
    monkeypatch.setattr(edges, "QUICK_DELIVERIES", 20)
    result = await edges.measure(Options(rounds=1, quick=True), lambda text: None, at_once=[2])
    figures = {figure.name: figure.values for figure in result.figures}
    for name in SERVERS:
        assert min(figures[f"memory, 2 at once: {name}"]) > 0
        assert 0 < max(figures[f"memory, 2 at once: {name}: load generator busy"]) < 100
    for name in DELIVERERS:
        assert min(figures[f"memory, deliveries: {name}"]) > 0
    assert [name for name in figures if " / " in name] == [
        "memory, 2 at once: gateway / uvicorn",
        "memory, 2 at once: gateway / uvicorn with group commit",
        "memory, deliveries: trigger / worker",
        "memory, deliveries: trigger --group-by / worker",
    ]


def test_a_ratio_is_that_of_medians() -> None:
    ours, bare = ([Measured(rate, None, 0) for rate in rates] for rates in ((1, 9, 2), (4, 1, 5)))
    assert edges.ratio(ours, bare) == 0.5


@pytest.mark.parametrize("together", [True, False])
def test_a_bare_program_commits_for_each_post_or_for_all_that_wait(together: bool, tmp_path: Path) -> None:
    application = Accepting(str(tmp_path / "bare.sqlite"), together=together)
    commits: list[str] = []
    application._db.set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)

    async def answers(keys: list[str]) -> list[bytes]:
        return await asyncio.gather(*(answer(application, key) for key in keys))

    new, duplicate = b'{"duplicate":false}', b'{"duplicate":true}'
    assert asyncio.run(answers(["a", "b", "a"])) == [new, new, duplicate]
    assert asyncio.run(answers(["b", "c"])) == [duplicate, new]
    assert commits == (["COMMIT"] * 2 if together else [])
    assert application._db.execute("SELECT key FROM message").fetchall() == [("a",), ("b",), ("c",)]


async def answer(application: Callable[..., Awaitable[None]], key: str) -> bytes:
    """Return the answer to one POST."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"body": b"body", "more_body": False}

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "headers": [(b"idempotency-key", key.encode())]}
    await application(scope, receive, send)
    body: bytes = sent[-1]["body"]
    return body


@pytest.mark.parametrize(
    "came", [["0/0", "1/1"], ["0/2", "1/1", "0/0"], ["0/0", "1/1", "0/2", "0/2"], ["0/0", "1/1", "1/2"]]
)
def test_what_was_lost_or_came_twice_or_in_another_order_is_no_figure(came: list[str]) -> None:
    sent = [b"0/0 ...", b"1/1 ...", b"0/2 ..."]
    check("trigger", sent, ["1/1 ...", "0/0 ...", "0/2 ..."])
    with pytest.raises(BenchError, match="of 3 messages"):
        check("trigger", sent, came)
