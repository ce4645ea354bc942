from __future__ import annotations

import gzip
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.decode.views.quality import NO_FINDING, NOTHING
from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.pipeline.source.files import inventory
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE
from mqproto.simulator.command import captured
from mqproto.simulator.command.captured import names_of
from mqproto.simulator.command.viewing import Options
from mqproto.simulator.topology import load, parse
from mqproto.wire import encode_packet, guid_text
from tests.captures.decode.large import write_capture
from tests.captures.decode.scene import Scene, address, guid, ordered, transactional
from tests.captures.decode.story import story
from tests.captures.frames import fragments_of
from tests.captures.pipeline.capture_files import block, option as an_option, section_header
from tests.captures.pipeline.samples import another_run
from tests.captures.tunnels import ethernet, ip
from tests.conformance import ROOT
from tests.examples import a_user_message
from tests.simulator.typed import COMMAND, Done, in_process

MEMORY_LIMIT_BYTES = 200 * 1024 * 1024
LARGE = "MQPROTO_LARGE_CAPTURE_BYTES"
"""The environment variable that sets the size in bytes of the capture in the memory test; a capture of 1000000000 bytes
takes some minutes.
"""


def frames_of(scene: Scene) -> list[Frame]:
    talks: dict[int, TcpConversation] = {}
    frames: list[Frame] = []
    for seen in scene.packets:
        talk = talks.get(seen.connection)
        if talk is None:
            talk = talks[seen.connection] = TcpConversation(seen.source, seen.destination)
            frames += [Frame(time_ns=seen.time_ns, data=data) for data in talk.open()]
        side = Side.SERVER if seen.source.port == 1801 else Side.CLIENT
        frames += [Frame(time_ns=seen.time_ns, data=data) for data in talk.send(side, seen.data)]
    return frames


def file_of(scene: Scene) -> bytes:
    file = io.BytesIO()
    with PcapngWriter(file) as capture:
        for frame in frames_of(scene):
            capture.write(frame)
    return file.getvalue()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "story.pcapng"
    path.write_bytes(file_of(story()))
    return path


def correct() -> Scene:
    """Return the story without its faulty packet."""
    scene = story()
    scene.packets.pop()
    return scene


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    nodes = [
        f'[node.{name}]\naddress = "{address(letter)}"\nguid = "{guid_text(guid(letter))}"\n'
        f"[node.{name}.queue.orders]\nid = 16\n"
        for letter, name in (("a", "alpha"), ("b", "beta"), ("c", "gamma"))
    ]
    path = tmp_path / "abc.toml"
    links = '[[link]]\nbetween = ["alpha", "beta"]\n[[link]]\nbetween = ["beta", "gamma"]\n'
    path.write_text("\n".join([*nodes, links]), "utf-8")
    return path


def decoded(*arguments: str | Path, stdin: bytes = b"") -> Done:
    return in_process("decode", *arguments, stdin=stdin)


def test_a_capture_is_shown_line_by_line_with_its_findings(capture: Path) -> None:
    done = decoded(capture)
    lines = done.out.splitlines()
    assert done.status == FINDING
    assert "2023-11-14 UTC" in lines[0]
    assert len(lines) == 1 + len(story().packets) + 2 + 1
    assert lines[-2].startswith("        fault wrong-count: #25 ")
    assert any(line.strip().startswith("note resend: #17") for line in lines)
    assert lines[-1] == "25 packets; 1 fault, 1 note"


def test_one_without_faults_is_done(tmp_path: Path) -> None:
    path = tmp_path / "fine"
    path.write_bytes(file_of(correct()))
    done = decoded(path)
    assert (done.status, done.err) == (DONE, "")
    assert done.out.splitlines()[-1] == "24 packets; 0 faults, 1 note"


def test_bytes_that_begin_no_packet_are_counted_for_none(tmp_path: Path) -> None:
    hostile = str(ROOT / "captures/samples/hostile.pcapng")
    assert decoded(hostile).out.splitlines()[-1].startswith("264 packets; 73 faults")
    assert decoded(hostile, "--summary").out.splitlines()[1].startswith("264 packets, 76,951 bytes")
    made = in_process("decode", hostile, "--tables", str(tmp_path / "tables"))
    assert "264 packets; 52 TCP connections in all" in made.out


@pytest.mark.parametrize("packing", [bytes, gzip.compress])
def test_it_may_be_packed_and_come_by_the_standard_input(packing: type[bytes], capture: Path) -> None:
    packed = packing(capture.read_bytes())
    shown = decoded("-", stdin=packed)
    (capture.parent / "packed").write_bytes(packed)
    assert shown.out == decoded(capture).out == decoded(capture.parent / "packed").out


def test_nodes_and_queues_go_by_the_names_of_a_topology(capture: Path, topology: Path) -> None:
    out = decoded(capture, "--topology", topology, "--queue", "gamma\\orders", "--kind", "Transactional").out
    assert [line.split()[2:5] for line in out.splitlines()[1:3]] == [
        ["alpha", "beta", "Transactional"],
        ["beta", "gamma", "Transactional"],
    ]
    assert "gamma" in decoded(capture, "--topology", topology, "--diagram").out.splitlines()[0]


def test_names_of_a_topology_are_those_of_its_nodes_and_queues() -> None:
    names = names_of(load("three-node"))
    sender = load("three-node").nodes["sender"]
    assert names.managers[sender.guid] == "sender"
    assert names.addresses[sender.address] == "sender"
    assert "destination\\orders" in names.queues.values()
    foreign = guid("mainframe")
    connector = parse(f"[node.a.queue.q]\nconnector = '{guid_text(foreign)}'", "t.toml")
    # Its GUID is in packets for either of the two queues.
    assert names_of(connector).queues[foreign] == f"a\\connector {guid_text(foreign)[:8]}"
    shared = load("three-node").with_free_ports()
    assert names_of(shared).hosts == {}


def test_every_packet_is_an_object_of_json_and_what_comes_out_at_the_end_another(
    tmp_path: Path, capture: Path
) -> None:
    rows = [json.loads(line) for line in decoded(capture, "--json").out.splitlines()]
    assert [row["number"] for row in rows] == list(range(1, 26))
    assert len({tuple(row) for row in rows}) == 1
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1))
    wire.send("c", ordered(3))
    path = tmp_path / "end"
    path.write_bytes(file_of(scene))
    done = decoded(path, "--json")
    assert json.loads(done.out.splitlines()[-1])["finding"]["code"] == "order-ack-beyond"
    assert done.status == FINDING
    assert "at the end: fault order-ack-beyond" in decoded(path).out


def test_every_field_is_shown_with_its_offset_and_bytes(capture: Path) -> None:
    done = decoded(capture, "-v", "--kind", "FinalAck")
    assert "properties.message_body" in done.out
    assert "user.queue_manager_address" in done.out
    [row, _] = [json.loads(line) for line in decoded(capture, "-v", "--json", "-k", "Final").out.splitlines()]
    assert "".join(field["bytes"] for field in row["fields"]) != ""
    assert row["fields"][0]["offset"] == 0


def test_filters_and_a_limit_choose_packets(capture: Path) -> None:
    def numbers(*arguments: str) -> list[int]:
        return [
            json.loads(line)["number"] for line in decoded(capture, "--json", *arguments).out.splitlines()
        ]

    assert numbers("--kind", "Transactional", "--kind", "OrderAck") == [9, 10, 11, 17, 18, 19, 20]
    assert numbers("--queue", "\\16", "--connection", "2") == [17, 18]
    assert numbers("--node", "10.0.0.3", "--until", "0.005") == [5, 6]
    assert numbers("--since", "22:13:22.024") == [24, 25]
    assert numbers("--sequence", "1", "--limit", "2") == [9, 10]
    late = decoded(capture, "--relative", "--since", "2.0201").out.splitlines()
    assert late[1].split()[:2] == ["22", "2.021000"]
    assert "2 packets, and more that --limit leaves out" in decoded(capture, "--limit", "2").out


def test_where_nothing_is_found_it_is_said_what_was_not_read(tmp_path: Path) -> None:
    path = tmp_path / "esp.pcapng"
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for data in (ip(50, bytes(40)), ip(50, bytes(40)), ethernet(0x0806, bytes(28))):
            writer.write(Frame(1, data))
    said = "2 frames are ESP, which is not read; 1 frame is ARP\n"
    assert decoded(path).out == f"0 packets; 0 faults, 0 notes; {said}"
    for option in ("--json", "--diagram"):
        assert decoded(path, option) == Done(DONE, "", f"mqproto: 0 packets; {said}")
    assert decoded(path, "--follow", "order").err.endswith(f"mqproto: 0 packets; {said}")
    summary = decoded(path, "--summary").out
    assert summary.endswith("no findings in what was read; 2 frames are ESP, which is not read\n")
    assert "nothing is known to be lacking" not in summary


def dropping(frame: int, whole: int) -> bytes:
    """Return the story as a capture that says how many frames were dropped: before one of them, and in all."""
    file = io.BytesIO()
    with PcapngWriter(file, interface="eth0") as writer:
        for number, each in enumerate(frames_of(correct())):
            writer.write(each._replace(options=((4, struct.pack("<Q", frame)),) if number == 9 else ()))
        counts = an_option("<", 5, struct.pack("<Q", whole - 2)) + an_option("<", 7, struct.pack("<Q", 2))
        file.write(block("<", 5, bytes(12) + counts))
    return file.getvalue()


def fragments(last: int) -> bytes:
    """Return the story as a capture in which each frame with data is split into two fragments.

    If `last` is 2, the capture has both fragments of each; if it is 1, only the second one.
    """
    file = io.BytesIO()
    with PcapngWriter(file) as writer:
        for frame in frames_of(correct()):
            pieces = fragments_of(frame.data) if len(frame.data) > 100 else [frame.data]
            for data in pieces if last == 2 else pieces[last:]:
                writer.write(frame._replace(data=data))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (file_of(correct())[:-1], "damaged-capture", " bytes into a block of "),
        (gzip.compress(file_of(correct()))[:-9], "damaged-capture", "the packing is damaged"),
        (dropping(5, 27), "missing-frames", "lacking.pcapng says: 27 frames dropped at interface 0 (eth0)"),
        (dropping(9, 2), "missing-frames", "lacking.pcapng says: 9 frames dropped at interface 0 (eth0)"),
        (dropping(0, 2), "missing-frames", "lacking.pcapng says: 2 frames dropped at interface 0 (eth0)"),
        (fragments(1), "missing-frames", " IP packets of which fragments are missing, not read"),
        (fragments(2), "", ""),
    ],
    ids=["cut off", "packed", "statistics", "beside a frame", "both", "fragments", "both fragments"],
)
def test_what_a_capture_lacks_is_said_wherever_it_is_summed_up(
    data: bytes, code: str, said: str, tmp_path: Path
) -> None:
    path, tables = tmp_path / "lacking.pcapng", tmp_path / "tables"
    path.write_bytes(data)
    summary, made = decoded(path, "--summary").out, decoded(path, "--tables", tables).out
    report = in_process("report", tables).out
    for text in (summary, made, report):
        assert (f"note  {code} " in text) is bool(code)
        assert NO_FINDING not in text or not code
    for text in (summary, report):
        assert said in " ".join(text.split())
        assert (NOTHING in text) is not bool(code)
    assert [said in each for each in json.loads(decoded(path, "--summary", "--json").out)["lacks"]] == [
        True
    ] * bool(code)
    page = (tables / "report.html").read_text()
    assert said in page
    assert (NOTHING in page) is not bool(code)


def test_where_there_is_no_capture_it_is_said_what_to_do_and_nothing_is_made(tmp_path: Path) -> None:
    folder, empty, packed, link = (
        tmp_path / name for name in ("folder", "empty.pcap", "folder/a.bz2", "link")
    )
    folder.mkdir()
    packed.write_bytes(b"BZh91AY&SY")
    empty.touch()
    link.symlink_to("nowhere")
    for path, said in (
        (folder, "is a folder; name a file in it, or --tables for all of it"),
        ("s3://captures/day.pcap", "is a URI, which --tables reads"),
        (empty, "is empty; name a capture"),
        (link, "is a link that leads nowhere; name a capture"),
        (tmp_path / "none", "and no file has this name; name a capture"),
    ):
        done = decoded(path, "--summary")
        assert done.status == MISUSE
        assert done.complaint.endswith(said)
    assert decoded("s3://captures/day.pcap").complaint.endswith("is a URI, which --tables reads")
    for path, said in (
        (folder, "1 file of other kinds; name one to be told what it is"),
        (packed, "it is packed with bzip2: bzip2 -dc IN > OUT unpacks it"),
        (empty, "the file is empty"),
    ):
        done = decoded(path, "--tables", tmp_path / "tables")
        assert (done.status, done.out) == (MISUSE, "")
        assert done.complaint.endswith(said)
        assert not (tmp_path / "tables").exists()
    packed.unlink()
    assert decoded(folder, "--tables", tmp_path / "tables").status == MISUSE


def test_the_summary_counts_everything(capture: Path) -> None:
    done = decoded(capture, "--summary")
    assert done.status == FINDING
    assert "fault wrong-count" in done.out
    assert "frames = " in done.out
    assert json.loads(decoded(capture, "--summary", "--json").out)["faults"] == 1


def test_one_message_is_followed(capture: Path) -> None:
    done = decoded(capture, "--follow", "order 1")
    assert done.status == DONE
    assert "reached its destination after 1.000 ms" in done.out
    assert len(json.loads(decoded(capture, "--follow", "order 1", "--json").out)) == 1
    missing = decoded(capture, "--follow", "order 9")
    assert missing.status == FINDING
    assert "no message 'order 9' crosses" in missing.complaint


def test_a_diagram_is_drawn_as_text_and_as_svg(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "ladder.svg"
    done = decoded(capture, "--diagram", "--svg", path)
    assert done.status == FINDING
    assert max(map(len, done.out.splitlines())) <= captured.DIAGRAM_COLUMNS
    assert "◄──" in done.out
    assert "25 packets of story.pcapng" in ElementTree.parse(path).getroot()[0].text  # type: ignore[operator]


def test_a_killed_node_and_what_is_alike_is_seen_in_a_diagram() -> None:
    sample = ROOT / "captures" / "samples" / "intermediate-killed.pcapng"
    done = decoded(sample, "--diagram")
    assert done.status == DONE
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 60
    assert [line.count("✖ reset") for line in lines].count(1) == 2
    assert "✖ 3 × refused" in done.out
    assert "● back after 2.0 s" in done.out
    assert "12 × tx 1–12" in done.out
    unfolded = decoded(sample, "--diagram", "--verbose")
    assert " × " not in unfolded.out
    assert len(unfolded.out.splitlines()) > 93
    # Who asks for some packets, or for one connection, is not told what became of nodes.
    assert "✖" not in decoded(sample, "--diagram", "--kind", "SessionAck").out
    assert decoded(sample, "--diagram", "--connection", "0").out.count("✖ reset") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--summary", "--follow", "x"], "choose one"),
        (["--kind", "frobnicate"], "no kind of packet"),
        (["--since", "soon"], "not a time"),
        (["--sequence", "x"], "ORDINAL"),
        (["--topology", "nowhere"], "nowhere"),
        (["--follow", ""], "--follow takes"),
        (["--diagram", "--limit", "0"], "--limit"),
    ],
)
def test_what_cannot_be_meant_is_misuse_in_one_line(capture: Path, arguments: list[str], words: str) -> None:
    done = decoded(capture, *arguments)
    assert done.status == MISUSE
    assert words in done.complaint


def test_a_truncated_capture_is_shown_up_to_the_damage_and_then_said_to_be_damaged(capture: Path) -> None:
    whole = capture.read_bytes()
    capture.write_bytes(whole[:-30])
    done = decoded(capture)
    assert done.status == FINDING
    assert "OrderAck" in done.out
    assert "story.pcapng: byte" in done.complaint
    for form in (["--summary"], ["--json"], ["--follow", "1"], ["--diagram"]):
        done = decoded(capture, *form)
        assert done.status == FINDING
        assert done.out
        assert "byte" in done.complaint


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a\x0d\x0d\x0a", "byte 0"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "byte"),
        (gzip.compress(b"hello, this is not a capture", mtime=0), "no capture"),
        (b"\x1f\x8b" + bytes(20), "damaged"),
        (b"\xd4\xc3\xb2\xa1", "byte 0"),
    ],
    ids=["magic alone", "no block", "packed text", "damaged packing", "pcap's magic alone"],
)
def test_what_only_begins_like_a_capture_is_none(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(data)
    for form in ([], ["--summary"], ["--json"]):
        done = decoded(path, *form)
        assert done.status == MISUSE
        assert words in done.complaint


@pytest.mark.parametrize(
    ("head", "remedy"),
    [
        (b"GMBU\0\2\1\0", "editcap -F pcapng IN OUT"),
        (b"RTSS\1\1\1\0", "editcap -F pcapng IN OUT"),
        (b"snoop\0\0\0\0\0\0\2", "editcap -F pcapng IN OUT"),
        (b"TRSNIFF data    \x1a", "editcap -F pcapng IN OUT"),
        (b"TR\0d\0\0\0\0", "editcap -F pcapng -T ether IN OUT"),
        (b"\x01\x10L\0\x01\x05Trace", "editcap -F pcapng IN OUT"),
        (b"\x34\xcd\xb2\xa1\2\0\4\0", "editcap -F pcapng IN OUT"),
        (b"PK\3\4", "unzip IN"),
        (b"BZh91AY&SY", "bzip2 -dc IN > OUT"),
        (b"\xfd7zXZ\0", "xz -dc IN > OUT"),
        (b"7z\xbc\xaf\x27\x1c", "7z x IN"),
        (bytes(257) + b"ustar\0", "tar -xf IN"),
        (b"\0\0\1\0" + bytes(68) + b"\2\0\2\xc0", "etl2pcapng IN OUT"),
        (b"ElfFile\0", "event log"),
        (b"%PDF-1.7\n", "PDF"),
        (b"<!DOCTYPE html>\n", "HTML"),
    ],
    ids=lambda value: repr(value[:8]),
)
def test_a_file_of_another_kind_is_named_with_its_remedy(head: bytes, remedy: str, tmp_path: Path) -> None:
    """This includes a file that contains a packet, and one that was compressed with gzip."""
    path, data = tmp_path / "x.cap", head + bytes(300) + encode_packet(a_user_message())
    for written in (data, gzip.compress(data, mtime=0)):
        path.write_bytes(written)
        for form in ([], ["--summary"], ["--json"]):
            done = decoded(path, *form)
            assert done.status == MISUSE
            assert remedy in done.complaint
            assert "base." not in done.out
        [refused] = inventory([str(path)]).refused
        assert remedy in str(refused)


@pytest.mark.parametrize(
    ("ticks", "resolution", "offset_s", "day"),
    [
        (2**64 - 100, 6, 0, "+586524-01-19"),
        (1_700_000_000_000_000, 6, -(2**62), "-146138510290-05-29"),
        (2**64 - 100, 0, 2**63 - 1, "+876831075850-10-13"),
        (2**64 - 100, 0x80 | 29, 0, "3058-10-26"),
        (0, 9, -3_600, "1969-12-31"),
    ],
)
def test_a_capture_of_any_time_is_shown_in_every_view(
    ticks: int, resolution: int, offset_s: int, day: str, capture: Path
) -> None:
    options = an_option("<", 9, bytes([resolution])) + an_option("<", 14, struct.pack("<q", offset_s))
    data = section_header("<") + block("<", 1, struct.pack("<HHI", 1, 0, 0) + options)
    for number, frame in enumerate(read_capture(capture)):
        head = struct.pack("<IIIII", 0, *divmod(ticks + number, 2**32), len(frame.data), len(frame.data))
        data += block("<", 6, head + frame.data + bytes(-len(frame.data) % 4))
    path = capture.with_name("far.pcapng")
    path.write_bytes(data)
    lines = decoded(path).out.splitlines()
    assert len(lines) > 20
    assert f"{day} UTC" in lines[0]
    for form in (
        ["-v"],
        ["-r"],
        ["--json"],
        ["--summary"],
        ["--follow", "1"],
        ["--diagram"],
        [f"--since={day}"],
    ):
        done = decoded(path, *form)
        assert done.status in (DONE, FINDING), done.err
        assert done.out
        assert not done.err
    assert f"from {day} " in decoded(path, "--summary").out
    assert len(decoded(path, f"--since={day}").out.splitlines()) == len(lines)


def test_options_for_captures_are_refused_for_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello there")
    done = decoded(path, "--summary")
    assert done.status == MISUSE
    assert "notes.txt is not a capture" in done.complaint


def test_a_reader_who_has_had_enough_ends_it_quietly(tmp_path: Path) -> None:
    path = tmp_path / "much.pcapng"
    write_capture(path, 1_000_000)
    command = f"{' '.join(COMMAND)} decode {path} | head -n 2 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (DONE, b"")


WITH_ITS_PEAK = """
import sys
from pathlib import Path
from mqproto.simulator.cli.cli import run_command
status = run_command(sys.argv[1:])
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(peak.split()[1], file=sys.stderr)
sys.exit(status)
"""
"""A script that runs the command in its own process and prints its own peak memory.

The peak of a finished child would include its parent's memory.
"""


@pytest.mark.long
def test_the_summary_of_a_large_capture_needs_little_memory(tmp_path: Path) -> None:
    """The default capture has 24 MB; its messages exceed a quarter of each limit on what is remembered."""
    path = tmp_path / "large.pcapng"
    packets = write_capture(path, int(os.environ.get(LARGE, "24_000_000")), body_bytes=200)
    command = [sys.executable, "-c", WITH_ITS_PEAK, "decode", "-", "--summary", "--json"]
    with path.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, check=False)
    shown = json.loads(done.stdout)
    assert done.returncode == DONE
    assert (shown["packets"], shown["findings"]) == (packets, [])
    peak_kib = int(done.stderr)
    assert peak_kib * 1024 < MEMORY_LIMIT_BYTES
    if LARGE in os.environ:
        print(f"{packets:,} packets: {peak_kib:,} KiB", file=sys.stderr)


def test_a_mode_is_asked_for_by_its_options_alone() -> None:
    with pytest.raises(UsageError, match="choose one"):
        captured.run([captured.Opened(io.BytesIO(), "nothing")], Options(summary=True, diagram=True))


def test_captures_of_two_systems_are_not_shown_as_one(tmp_path: Path) -> None:
    one, same = (f"captures/samples/{name}.pcapng" for name in ("window", "loss-and-reordering"))
    other = str(another_run("three-hop", tmp_path))
    done = in_process("decode", one, other)
    assert (done.status, done.out) == (MISUSE, "")
    assert done.err == (
        f"mqproto: {other} and {one} are not of one system: of 10 messages that both have by their identifiers, 10 "
        "have other contents; decode them one by one\n"
    )
    assert in_process("decode", one, same, "--limit", "1").status == DONE
