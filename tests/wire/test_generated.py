"""The codec in the tree is the one that the layouts make."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.codec import GENERATED, codec
from tests.conformance import ROOT


def parts_of(source: str) -> list[str]:
    """Return the statements of a module, in a normalized spelling."""
    return [ast.unparse(statement) for statement in ast.parse(source).body]


def test_the_codec_is_the_one_that_the_layouts_make() -> None:
    there, made = parts_of(GENERATED.read_text("utf-8")), parts_of(codec())
    other = [part.partition("\n")[0] for part in made if part not in there]
    assert other == [], "mqproto/wire/generated.py has other layouts than those in the tree: make codec"
    assert there == made, "mqproto/wire/generated.py is not what the layouts make: make codec"


def test_it_is_written_without_the_one_in_the_tree() -> None:
    program = (
        "import sys; sys.modules['mqproto.wire.generated'] = None; "
        "from tests import codec; print(codec.without_the_one_in_the_tree())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert parts_of(done.stdout) == parts_of(codec())
