"""Packs our packages into one zip, for executors on machines that do not have them.

spark-submit takes the zip with --py-files. construct is included, because it is small and pure Python. Compiled
packages have to be installed: numpy, pyarrow, and before Python 3.14 backports.zstd.
"""

from __future__ import annotations

import importlib
import zipfile
from glob import glob
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

PACKAGES: Final = ("mqproto", "pyspark_mqproto", "construct")


def pack(path: Path | str) -> Path | str:
    """Write the zip; its name has to end in .zip, or Spark does not let Python import from it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in PACKAGES:
            found = importlib.import_module(name).__file__
            assert found is not None, f"{name} is a folder without __init__.py"
            folder = Path(found).parent
            # In a checkout mqproto.captures is a link, which glob follows; no worker imports mqproto.simulator.
            for source in sorted(glob("**/*.py", root_dir=folder, recursive=True)):
                if not source.startswith("simulator/"):
                    file.write(folder / source, Path(name) / source)
                    # Compiled here, so a worker with the same Python need not do it again.
                    if (compiled := Path(cache_from_source(str(folder / source)))).exists():
                        file.write(compiled, Path(name) / f"{source}c")
    return path
