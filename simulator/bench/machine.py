"""What a figure has to be read with."""

from __future__ import annotations

import platform
import sqlite3


def machine() -> dict[str, str]:
    """Python, its build, SQLite."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "compiler": platform.python_compiler(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
    }
