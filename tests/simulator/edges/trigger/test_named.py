"""Names on the command line are found, or refused in one line."""

from __future__ import annotations

import json

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.edges.trigger.named import function


@pytest.mark.parametrize("name", ["orders", "no_such_module_at_all:accept", "json:nothing", "json:__name__"])
def test_a_function_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name) as refused:
        function(name, "write module:function")
    assert "\n" not in str(refused.value)


def test_a_function_is_found_by_its_name() -> None:
    assert function("json:dumps", "write module:function") is json.dumps
