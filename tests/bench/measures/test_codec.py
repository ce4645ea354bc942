"""The codec's benchmark: who is measured has read and written the same message; who is not there is named."""

from __future__ import annotations

import dataclasses
import sys
from statistics import median

import pytest

from mqproto.wire import encode_packet
from tests.bench import byhand
from tests.bench.measures.codec import (
    BY_HAND,
    DESTINATIONS,
    GENERATED,
    INTERPRETED,
    MOST_BY_HAND,
    CodecFigures,
    bench_codec,
    example,
    hold_to,
)
from tests.bench.measures.others import MODULES, contender_for, contenders, values_of

pytestmark = pytest.mark.pure("it fills records through their slots, which compiled ones do not have")


def test_everybody_is_measured_in_every_round() -> None:
    figures = bench_codec(rounds=2)
    assert {*figures.us} == {
        f"{task}, {kind} name" for task in ("parse", "build", "check") for kind in DESTINATIONS
    }
    for task, times in figures.us.items():
        assert all(len(runs) == 2 and min(runs) > 0 for runs in times.values())
        assert (INTERPRETED in times) == (task in ("parse, private name", "build, private name"))
        if INTERPRETED in times:
            # How near they are `bench codec` says, on a machine that does nothing else.
            assert median(figures.ratios(task, INTERPRETED, GENERATED)) > 1
    assert min(figures.packet_bytes.values()) > 1_024


@pytest.mark.parametrize("package", MODULES)
def test_each_contender_reads_and_writes_the_same_message(package: str) -> None:
    pytest.importorskip(package)
    contender = contender_for(package)
    for kind in DESTINATIONS:
        message = example(kind=kind)
        packet = encode_packet(message)
        hold_to(message, packet, byhand, [contender])
        other = dataclasses.replace(contender, values=lambda parsed: values_of(example(3)))
        with pytest.raises(AssertionError, match=contender.name):
            hold_to(message, packet, byhand, [other])
        if contender.build is not None:
            other = dataclasses.replace(contender, build=lambda prepared: b"something else")
            with pytest.raises(AssertionError, match=contender.name):
                hold_to(message, packet, byhand, [other])


def test_contenders_that_are_not_installed_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, module in MODULES.items():
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, f"tests.bench.contenders.{module}", raising=False)
    present, missing = contenders()
    assert present == []
    assert missing[-1] == "scapy is not installed: pip install 'mqproto[bench]'"


@pytest.mark.parametrize(("generated", "reached"), [(1.2, True), (1.3, False)])
def test_what_is_promised_is_judged_by_the_median_of_the_rounds(generated: float, reached: bool) -> None:
    times: dict[str, tuple[float, ...]] = {
        GENERATED: (generated, 2 * generated, 9.0),
        BY_HAND: (1.0, 2.0, 1.0),
    }
    figures = CodecFigures({}, 3, {"parse": times, "check": {GENERATED: (9.0, 9.0, 9.0)}})
    assert figures.ratios("parse", GENERATED) == (generated, generated, 9.0)
    assert figures.reached == reached == (generated <= MOST_BY_HAND)
