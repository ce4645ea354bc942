"""README as an index shows it: there a link to a file of the repository leads nowhere, so its words stay alone."""

import re
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"!?\[([^]]+)\]\((?!https?://)[^)]+\)")

setup(
    long_description=LINK.sub(r"\1", Path("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
