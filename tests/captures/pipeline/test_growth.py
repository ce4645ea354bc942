"""What is kept of a series for its next files: objects of known classes, in a known form."""

from __future__ import annotations

import os
import pickle
import zlib
from collections import Counter
from enum import Enum
from pathlib import Path

import pytest

from captures.decode.findings import Severity
from captures.decode.sessions.connections import Stage
from captures.decode.sight import Kind
from captures.files.frame import Interface
from captures.files.pcapng import Section
from captures.framing import Framing, Mark, StreamCount
from captures.net.causality import View
from captures.net.conversation import Side
from captures.net.direction import Chunk, Early, Ending, InPlace, Stream
from captures.net.recent import Held, Recent
from captures.net.sender import Sender, Waiting
from captures.net.streams import Connection
from captures.net.tcp import Endpoint, Segment
from captures.packets import Totals
from captures.pipeline import known, work
from captures.pipeline.files import CaptureFile
from captures.pipeline.folders import SeriesFolder, hash_of
from captures.pipeline.fragments import waiting_before
from captures.pipeline.growth import FORM, Growth, saved_pairs
from captures.pipeline.job import analyse
from captures.pipeline.lookback import LookBack
from captures.pipeline.reading import Place
from captures.pipeline.runner import LocalRunner
from captures.pipeline.saving import loads, pickled, save, saved
from captures.pipeline.scan import Reading
from captures.pipeline.seams import OpenPair, PairState
from captures.pipeline.stages.histories import Outcome
from captures.pipeline.tables import Tables, TablesError
from mqproto.wire import PacketBuffer
from mqproto.wire.classes import MessageClass
from tests.captures.pipeline.forms import attributes
from tests.captures.pipeline.samples import SAMPLES

ENDS = Endpoint("10.0.0.1", 49152), Endpoint("10.0.0.2", 1801)


def test_the_form_is_another_when_a_saved_class_is() -> None:
    """If this fails, raise FORM, and put in the new digest: older tables must not be read as if they were newer."""
    stream = Stream(0, *ENDS)
    sender, framing = Sender(stream, Held()), Framing(stream, in_step=True)
    connection = Connection(0, Segment(*ENDS, 1, 1, 0, 100, b"", b""))
    saved: list[object] = [Growth, OpenPair, PairState, LookBack, Stream, StreamCount, Totals, Place, Reading]
    saved += [
        CaptureFile,
        Section,
        Interface,
        Chunk,
        Early,
        InPlace,
        Waiting,
        Mark,
        PacketBuffer,
        View(sender, sender),
        Recent(Held()),
        sender,
        framing,
        connection,
    ]
    names = sorted(set().union(*map(attributes, saved)))
    assert (FORM, zlib.crc32("\n".join(names).encode())) == (12, 1072187091), names


class Command:
    """What runs something when it is unpickled, as a stranger would have it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/should-not-be-there",)


@pytest.mark.parametrize(
    "foreign",
    [
        pickle.dumps(Command()),
        pickle.dumps(analyse),
        pickle.dumps(os.path.join),
        b"ccaptures.pipeline.saving\nimport_module\n(Vos\ntR.",
        b"ccaptures.pipeline.saving\nPath\n(V/\ntR.",
        b"cbuiltins\ngetattr\n(ccaptures.direction\nEnding\nVOPEN\ntR.",
    ],
    ids=[
        "a command",
        "a function of ours",
        "another function",
        "a function that ours use",
        "a class that ours use",
        "how Python 3.11.2 names a member of an enumeration",
    ],
)
def test_what_is_no_saved_object_is_refused(foreign: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is nothing that is saved here"):
        loads(foreign)


@pytest.mark.parametrize(
    "kind", [Ending, Side, Stage, Severity, Kind, Outcome, MessageClass], ids=lambda kind: str(kind.__name__)
)
def test_a_member_of_an_enumeration_comes_back_as_itself(kind: type[Enum]) -> None:
    members = list(kind)
    found = loads(pickled(members))
    assert len(found) == len(members)
    assert all(one is other for one, other in zip(found, members, strict=True))


def test_every_python_writes_the_same() -> None:
    """Where one Python fails here, tables that it wrote cannot be added to by the others, nor theirs by it.

    Where all fail, a class has moved: raise the version of the tables, so that older ones are refused in a line.
    """
    assert pickled([Ending.OPEN, Counter(ARP=2), ENDS[0]]) == (
        b"\x80\x05\x95\x8f\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x16captures.net.direction\x94\x8c\x06Ending\x94\x93\x94"
        b"\x8c\x04open\x94\x85\x94R\x94"
        b"\x8c\x0bcollections\x94\x8c\x07Counter\x94\x93\x94}\x94\x8c\x03ARP\x94K\x02s\x85\x94R\x94"
        b"\x8c\x10captures.net.tcp\x94\x8c\x08Endpoint\x94\x93\x94\x8c\x0810.0.0.1\x94M\x00\xc0\x86\x94\x81\x94e."
    )


def test_the_fragments_that_wait_within_a_growth_are_no_way_in(tmp_path: Path) -> None:
    folder = SeriesFolder(tmp_path, buckets=1)
    folder.waiting(3).parent.mkdir()
    folder.waiting(3).write_bytes(pickle.dumps(Command()))
    with pytest.raises(pickle.UnpicklingError, match="is nothing that is saved here"):
        waiting_before(folder, 3)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    growth = Growth(frames=7, totals=Totals(frames=7, other_frames=Counter({"ARP": 2})))
    pairs = [OpenPair((Endpoint("10.0.0.1", port), ENDS[1])) for port in range(50_000, 50_020)]
    series = save(tmp_path, "_series/1.parquet", [(0, pickled(growth))])
    pairs_part = save(
        tmp_path, "_series/open.parquet", [(hash_of(pair.ends), pickled(pair)) for pair in pairs]
    )
    assert saved(tmp_path / series.name, Growth) == growth
    found = [
        pair for bucket in range(3) for pair in saved_pairs([str(tmp_path / pairs_part.name)], bucket, 3)
    ]
    assert sorted(pair.ends for pair in found) == sorted(pair.ends for pair in pairs)


def test_what_is_damaged_is_said_in_one_line(tmp_path: Path) -> None:
    part = save(tmp_path, "_series/1.parquet", [(0, pickle.dumps(Command()))])
    path = tmp_path / part.name
    with pytest.raises(TablesError, match="is nothing that is saved here"):
        saved(path, Growth)
    save(tmp_path, "_series/1.parquet", [(0, pickle.dumps(ENDS))])
    with pytest.raises(TablesError, match="holds no Growth"):
        saved(path, Growth)
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(TablesError, match="is damaged, analyse the captures into another folder") as told:
        saved(path, Growth)
    assert "\n" not in str(told.value)


def test_tables_of_another_form_are_read_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (SAMPLES / "window.pcapng").read_bytes()
    first, second = (tmp_path / f"run_{number:05d}_20261122083000.pcapng" for number in (1, 2))
    first.write_bytes((SAMPLES / "resent.pcapng").read_bytes())
    second.write_bytes(whole)
    tables, at_once = Tables(tmp_path / "out"), Tables(tmp_path / "at once")
    analyse([str(first)], tables, LocalRunner())
    monkeypatch.setattr(known, "FORM", FORM + 1)
    monkeypatch.setattr(work, "FORM", FORM + 1)
    (series,) = analyse([str(second)], tables, LocalRunner()).series
    assert (len(series.files), series.new) == (2, 2)
    analyse([str(first), str(second)], at_once, LocalRunner())
    assert tables.read("packets").sort_by("row_id") == at_once.read("packets").sort_by("row_id")
