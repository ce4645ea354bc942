from __future__ import annotations

import itertools
import json
import re

from mqproto.captures.decode import CODES, Finding, Severity
from tests.conformance import ROOT
from tests.test_readme import how_to

FINDING = Finding(Severity.FAULT, "hop-count", 7, "it came so and left so", "[MS-MQMQ] 2.2.19.2")


def test_a_finding_reads_well_and_is_json() -> None:
    assert str(FINDING) == "fault hop-count: #7 it came so and left so  [MS-MQMQ] 2.2.19.2"
    assert str(FINDING._replace(packet=0, section="")) == "fault hop-count: it came so and left so"
    shown = json.loads(json.dumps(FINDING.as_json()))
    assert (shown["severity"], shown["packet"]) == ("fault", 7)
    assert FINDING._replace(packet=0).as_json()["packet"] is None


def test_the_readme_lists_every_code_and_the_code_makes_no_other() -> None:
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", how_to("found-in-a-capture")))
    assert set(CODES) <= listed
    folder = ROOT / "captures"
    paths = [*(folder / "decode").rglob("*.py"), folder / "net" / "direction.py"]
    paths += [folder / "packets.py", folder / "pipeline" / "stages" / "tasks" / "findings.py"]
    sources = "".join(path.read_text("utf-8") for path in paths)
    made = set(re.findall(r'(?:FAULT|NOTE|severity|Severity\.FAULT|Severity\.NOTE), "([a-z-]+)"', sources))
    made |= set(re.findall(r'yield "([a-z-]+)", ', sources))
    made |= set(re.findall(r'MISSING_FRAMES: Final = "([a-z-]+)"', sources))
    made |= set(re.findall(r'ack, "([a-z-]+)", ', sources))
    of_files = paths[-1].read_text("utf-8")
    made |= {*itertools.chain(*re.findall(r'return "([a-z-]+)" if .* else "([a-z-]+)"', of_files))}
    assert made == set(CODES)
