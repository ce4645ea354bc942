"""The Sphinx configuration that makes a website from these pages (`make docs`).

The site loads nothing from other hosts.
"""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import declared

project = "mqproto"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
default_role = "code"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 100
html_theme = "furo"
html_title = "mqproto"
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
smartquotes = False  # It would make one dash of the two of an option.
myst_heading_anchors = 3
ASKED = re.compile(r"^\{\{(\w+)\}\}$", re.M)
FIELD = re.compile(r" *(\w+(?:, \w+)*): (?=\S)")


def filled(_app: object, _name: str, source: list[str]) -> None:
    """Replace each `{{name}}` in a page with the declarations that it stands for."""
    source[0] = ASKED.sub(lambda found: "\n".join(getattr(declared, found[1])()), source[0])


def listed(_app: object, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Turn a docstring's lines `field: what it is` into lists, and its indented lines into code."""
    told: list[str] = []
    depth: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if found := FIELD.match(line):
            told += [*[""] * (depth is None), f"- ``{found[1]}``: {line[found.end() :]}"]
            depth = indent
        elif depth is not None and indent > depth:
            told.append(f"  {line.strip()}")
        else:
            is_code = indent and told and not told[-1]
            told += ["::", "", line] if is_code else ["", line] if depth is not None else [line]
            depth = None
    lines[:] = [re.sub(r"(?<=\w)_(?!\w)", r"\_", line) for line in told]


def setup(app: Any) -> None:
    """Register the two functions above with Sphinx."""
    app.connect("source-read", filled)
    app.connect("autodoc-process-docstring", listed)
