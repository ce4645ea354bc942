"""Settings: defaults, ranges, and the resend table."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError


@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
@pytest.mark.spec("[MS-MQQB] 3.1.2.1")
@pytest.mark.spec("[MS-MQQB] 3.1.2.2")
@pytest.mark.spec("[MS-MQQB] 3.1.2.3")
@pytest.mark.spec("[MS-MQQB] 3.1.2.8")
def test_the_defaults_are_those_of_windows() -> None:
    settings = Settings()
    assert settings.window_size == 64
    assert settings.ack_wait_timeout_ms == 20_000
    assert settings.session_initialization_timeout_ms == 60_000
    assert settings.session_cleanup_timeout_ms == 300_000
    assert settings.try_connect_interval_ms == 5_000
    assert settings.order_ack_timeout_ms == 500
    assert settings.maximum_order_ack_delay_s == 10
    assert (settings.answer_pings, settings.require_pings) == (True, False)
    assert settings.remove_duplicate_size == 131_072
    assert settings.remove_duplicate_cleanup_ms == 30 * 60 * 1_000
    assert settings.send_insecure_nacks is False
    assert settings.expire_sent == "keep"


@pytest.mark.spec("[MS-MQQB] 3.1.3.1")
def test_the_resend_table_has_three_short_three_medium_three_long_entries_and_a_final_one() -> None:
    minutes = 60_000
    assert Settings().resend_timer_table_ms == (
        (30_000,) * 3 + (5 * minutes,) * 3 + (30 * minutes,) * 3 + (360 * minutes,)
    )


def test_no_entry_of_the_resend_table_is_so_short_that_time_would_stand_still() -> None:
    assert min(Settings(resend_timeouts_short_s=0.000_1).resend_timer_table_ms) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ack_wait_timeout_ms", 19_999),
        ("ack_wait_timeout_ms", 120_001),
        ("window_size", 0),
        ("window_size", 32_768),
        ("order_ack_timeout_ms", 0),
        ("maximum_order_ack_delay_s", 0),
        ("resident_messages", -1),
        ("quota_bytes", 0),
        ("journal_quota_bytes", 0),
        ("maximum_sequences", 0),
        ("expire_sent", "figure 9"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"{name} = {value}"):
        Settings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ack_wait_timeout_ms", 20_000),
        ("ack_wait_timeout_ms", 120_000),
        ("window_size", 1),
        ("window_size", 32_767),
    ],
)
def test_the_limits_themselves_are_allowed(name: str, value: Any) -> None:
    assert getattr(Settings(**{name: value}), name) == value
