"""The fixture `queue_managers`, for everybody who has installed mqproto. pytest finds the fixture by itself.

def test_an_order_arrives_though_the_line_was_cut(queue_managers):
    managers = queue_managers(3)
    managers.cut("qm1", "qm2")
    with managers.connect("qm1") as client:
        client.send(r"qm3\\private$\\orders", b"a bolt", transactional=True)
    managers.mend("qm1", "qm2")
    with managers.connect("qm3") as client:
        assert [message.body for message in client.receive("orders", timeout_s=20)] == [b"a bolt"]

Every pytest run where mqproto is installed imports this module, so it imports the rest only when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mqproto.simulator.testing.managers import Starting


@pytest.fixture
def queue_managers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starting]:
    """Start queue managers for one test, and end them even if the test fails. See
    `mqproto.simulator.testing.managers`."""
    try:
        from mqproto.simulator.testing.managers import Starting
    except ModuleNotFoundError as missing:
        pytest.fail(f"{missing.name} is not installed: pip install 'mqproto[testing]'")
    with ExitStack() as ends:
        yield Starting(lambda: tmp_path_factory.mktemp("queue-managers"), ends)
