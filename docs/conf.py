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
html_show_copyright = False
smartquotes = False  # It would make one dash of the two of an option.
myst_heading_anchors = 3
ASKED = re.compile(r"^\{\{(\w+)\}\}$", re.M)


def filled(_app: object, _name: str, source: list[str]) -> None:
    """Put what the program declares where a page asks for it."""
    source[0] = ASKED.sub(lambda found: "\n".join(getattr(declared, found[1])()), source[0])


def setup(app: Any) -> None:
    """Register it with Sphinx."""
    app.connect("source-read", filled)
