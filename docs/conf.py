"""How Sphinx makes a site of these pages: `make docs`. Nothing in it comes from another host."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import declared

project = "mqproto"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "mqproto"
html_copy_source = False
html_show_sourcelink = False
myst_heading_anchors = 3


def filled(_app: object, _name: str, source: list[str]) -> None:
    """Put what the program declares where a page asks for it."""
    source[0] = re.sub(
        r"^\{\{(\w+)\}\}$",
        lambda found: "\n".join(getattr(declared, found[1])()),
        source[0],
        flags=re.M,
    )


def setup(app: Any) -> None:
    """Register it with Sphinx."""
    app.connect("source-read", filled)
