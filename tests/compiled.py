"""The compiled build: its wheel, an environment with it, and the suite on it.

`python -m tests.compiled` builds the wheel into dist/ and installs it in .venv-fast, as `make fast` does.
`python -m tests.compiled --test` unpacks that wheel in build/compiled, lays the tests beside it and runs those of
SELECTION, or what is named behind it, as pytest takes it. Both build anew what is older than a source. With SELECTION
come WORLDS simulated worlds, each of which must come to the same on the source: a trace has all that happens in one.
`--test --short` is what CI runs: a few of the tests, and 20 worlds.

No extension module ever lies in the checkout, where it would hide its source.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from simulator.base.program.build import COMPILED, PURE, build
from simulator.base.program.collector import seldom_collected
from simulator.world.draw import draw
from simulator.world.run import simulate
from tests.conformance import ROOT
from tests.wheels import SOURCES, built, run

DIST: Final = ROOT / "dist"
ENVIRONMENT: Final = ROOT / ".venv-fast"
PLACE: Final = ROOT / "build" / "compiled"
TESTED: Final = ("tests", ".github", ".ci", "Makefile", "CHANGELOG.md", "requirements.lock")
"""What lies beside the packages for tests."""
LOOKING: Final = (
    "tests/captures/pipeline/kept",
    "tests/captures/wireshark/test_fields.py",
    "tests/captures/wireshark/test_script.py",
    "tests/simulator/fuzz/test_roles.py",
)
"""The tests of those who look into classes that are compiled."""
SELECTION: Final = (
    "tests/base",
    "tests/turn",
    "tests/session",
    "tests/queues",
    "tests/transfer",
    "tests/neighbours",
    "tests/manager",
    "tests/wire",
    "tests/test_spec_frames.py",
    "tests/simulator/node/test_node.py",
    "tests/simulator/base/program",
    *LOOKING,
)
"""The tests of what is compiled, and of those who call it or look into it."""
WORLDS: Final = 200
"""A seed for each."""
SHORT: Final = "--short"
SHORT_SELECTION: Final = (
    "tests/wire",
    "tests/session",
    "tests/transfer",
    "tests/test_spec_frames.py",
    *LOOKING,
)
"""What CI runs: what is made for this build alone, the codec and records, the rules nearest to them, and LOOKING."""
SHORT_WORLDS: Final = 20
WORLDS_ASKED: Final = "--worlds"
AT_ONCE: Final = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")


def newest_s() -> float:
    """When a source was changed last."""
    files = (file for name in SOURCES for file in (ROOT / name, *(ROOT / name).rglob("*")) if file.is_file())
    return max(file.stat().st_mtime for file in files if "__pycache__" not in file.parts)


def wheel() -> Path:
    """The wheel of the sources as they are now, built if there is none."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    found = sorted(DIST.glob(f"mqproto-*-{tag}-{tag}-*.whl"))
    if found and found[-1].stat().st_mtime > newest_s():
        return found[-1]
    for old in found:
        old.unlink()
    print("building the wheel: C of some 40 modules, which takes minutes", flush=True)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mqproto-compiled-") as folder:
        made = built(Path(folder), compiled=True)
        DIST.mkdir(exist_ok=True)
        place = Path(shutil.move(made, DIST / made.name))
    print(f"{place.relative_to(ROOT)}, {time.monotonic() - began_s:.0f} s", flush=True)
    return place


def install(found: Path) -> None:
    """An environment that has the wheel, and what the demo needs."""
    if not (ENVIRONMENT / "bin" / "python").exists():
        run(sys.executable, "-m", "venv", "--without-pip", str(ENVIRONMENT))
    pip = [sys.executable, "-m", "pip", "--python", str(ENVIRONMENT / "bin" / "python"), "install"]
    pip += ["--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "requirements.lock")]
    run(*pip, f"{found}[simulator,security]")
    run(*pip, "--no-deps", "--force-reinstall", str(found))
    print(
        f"{ENVIRONMENT.name}/bin/mqproto is compiled; `make fast` again after a change, which it does not see"
    )


def lay_out(found: Path) -> None:
    """The wheel's modules with the tests beside them."""
    shutil.rmtree(PLACE, ignore_errors=True)
    with zipfile.ZipFile(found) as packed:
        packed.extractall(PLACE)
    for name in (*SOURCES, *TESTED):
        # The packages as well, as they have folders that no wheel has.
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, PLACE / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / name, PLACE)


def test(arguments: Sequence[str]) -> int:
    """The status of pytest, and 1 if a world comes to something else than on the source."""
    selection, worlds = (SHORT_SELECTION, SHORT_WORLDS) if arguments == [SHORT] else (SELECTION, WORLDS)
    named = [] if arguments == [SHORT] else arguments
    lay_out(wheel())
    environment = {"HYPOTHESIS_PROFILE": "core", **os.environ, "PYTHONPATH": str(PLACE)}
    command = [sys.executable, "-m", "pytest", *AT_ONCE, *(named or selection)]
    status = subprocess.run(command, cwd=PLACE, env=environment, check=False).returncode
    return status if named else status | compare_worlds(worlds)


def compare_worlds(count: int) -> int:
    """Run the first seeds on both builds at a time; the status."""
    command = [sys.executable, "-m", "tests.compiled", WORLDS_ASKED, str(count)]
    running = [
        subprocess.Popen(
            command, cwd=place, env=os.environ | {"PYTHONPATH": str(place)}, stdout=subprocess.PIPE, text=True
        )
        for place in (ROOT, PLACE)
    ]
    pure, fast = (one.communicate()[0].splitlines() for one in running)
    found = differences(pure, fast, count)
    print(*found or [f"{count} worlds came to the same, compiled and on the source"], sep="\n", flush=True)
    return int(bool(found))


def come_to(seeds: Iterable[int]) -> Iterator[str]:
    """Which build this is, and then a line for each world: its seed, the digest of its trace, what broke."""
    yield build()
    for seed in seeds:
        result = simulate(draw(seed), traced=True)
        yield f"{seed}: {result.trace.digest()}, {result.breach or 'every invariant held'}"


def differences(pure: Sequence[str], fast: Sequence[str], count: int) -> list[str]:
    """What is not as it should be in what the two builds have printed of this number of worlds."""
    if [*pure[:1], *fast[:1]] != [PURE, COMPILED]:
        return [f"these are not the two builds: {pure[:1]}, {fast[:1]}"]
    if (len(pure), len(fast)) != (1 + count, 1 + count):
        return [f"of {count} worlds {len(pure) - 1} ended on the source, {len(fast) - 1} compiled"]
    pairs = zip(pure[1:], fast[1:], strict=True)
    return [f"seed {one}, and compiled {other}" for one, other in pairs if one != other]


def main(arguments: Sequence[str]) -> int:
    """Do what is asked; the status."""
    if arguments[:1] == ["--test"]:
        return test(arguments[1:])
    if arguments[:1] == [WORLDS_ASKED]:
        with seldom_collected():
            for line in come_to(range(int(arguments[1]))):
                print(line, flush=True)
        return 0
    install(wheel())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
