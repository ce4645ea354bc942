"""The zip for executors contains everything that our code needs, except compiled packages."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from mqproto.captures.pipeline.engines import shipping

ASK = """
import sys
sys.path[:0] = sys.argv[1:]
import mqproto.captures.decode, mqproto.captures.packets, construct, mqproto.wire
modules = mqproto.captures.decode, mqproto.captures.packets, construct, mqproto.wire
print(*{module.__file__.partition(".zip/")[0] for module in modules}, {module.__file__[-4:] for module in modules})
"""


def test_an_interpreter_with_nothing_but_zstd_imports_our_packages_from_it(tmp_path: Path) -> None:
    path = shipping.pack(tmp_path / "shipped.zip")
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    if sys.version_info < (3, 14):
        zstd = find_spec("backports.zstd")
        assert zstd is not None
        assert zstd.origin is not None
        (compiled / "backports").symlink_to(Path(zstd.origin).parents[1])
    # -S leaves out all that is installed.
    command = [sys.executable, "-S", "-I", "-c", ASK, str(path), str(compiled)]
    told = subprocess.check_output(command, text=True)
    assert told == f"{tmp_path / 'shipped'} {{'.pyc'}}\n"
