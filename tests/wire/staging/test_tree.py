"""The copy of the source that is compiled: it has all of the package, what is prepared in it, and the codec."""

from __future__ import annotations

from pathlib import Path

from mqproto.wire.generator.staging import tree
from mqproto.wire.generator.staging.records import with_inits
from tests.conformance import ROOT

MODULE = "mqproto/wire/layouts/user.py"
CODEC = "mqproto/wire/generator/compiled.py"


def test_the_copy_has_what_is_to_be_compiled_prepared_and_the_rest_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "staged" / "left.py").mkdir(parents=True)
    files = tree.stage([MODULE], ROOT, tmp_path / "staged")
    assert files == [str(tmp_path / "staged" / name) for name in (MODULE, CODEC)]
    source = (ROOT / MODULE).read_text("utf-8")
    assert (tmp_path / "staged" / MODULE).read_text("utf-8") == with_inits(source) != source
    other = "mqproto/wire/layouts/internal.py"
    assert (tmp_path / "staged" / other).read_bytes() == (ROOT / other).read_bytes()
    assert (tmp_path / "staged" / CODEC).read_text("utf-8") == tree.codec()
    assert not (tmp_path / "staged" / "left.py").exists()
    assert "follow_imports" in (tmp_path / "staged" / "mypy.ini").read_text("utf-8")


def test_no_checkout_has_what_is_made_of_the_layouts() -> None:
    """Where there is one, it is what the codec would take: a build's, in build/compiled."""
    there = ROOT / CODEC
    assert not there.exists()
