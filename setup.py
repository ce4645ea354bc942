"""Packages mqproto with the README in a form that a package index can show: links to files become plain words.

On an index, such links lead nowhere.
"""

import re
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"!?\[([^]]+)\]\((?!https?://)[^)]+\)")

setup(
    long_description=LINK.sub(r"\1", Path("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
