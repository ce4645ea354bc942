"""The Java's process: what is started for it, and what it leaves behind."""

from __future__ import annotations

import os

import pytest

from captures.pipeline.gateway import environment


def test_variables_are_as_they_were_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQPROTO_SET", "before")
    monkeypatch.delenv("MQPROTO_UNSET", raising=False)
    with environment({"MQPROTO_SET": "within", "MQPROTO_UNSET": "within"}):
        assert os.environ["MQPROTO_SET"] == os.environ["MQPROTO_UNSET"] == "within"
    assert os.environ["MQPROTO_SET"] == "before"
    assert "MQPROTO_UNSET" not in os.environ
