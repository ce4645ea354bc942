"""Our packages as one zip, for executors on machines that do not have them.

`python -m mqproto.captures.pipeline.engines.shipping FILE.zip` writes it for spark-submit's --py-files. construct goes
along, as it is small and of Python alone. What is compiled has to be there: numpy, pyarrow, and before Python 3.14
backports.zstd.
"""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from pathlib import Path
from typing import Final

PACKAGES: Final = ("mqproto", "pyspark_mqproto", "construct")


def pack(path: Path) -> Path:
    """Write the zip; its name has to end in .zip, or Python takes nothing from it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in PACKAGES:
            found = importlib.import_module(name).__file__
            assert found is not None, f"{name} is a folder without __init__.py"
            folder = Path(found).parent
            # In a checkout mqproto.captures and mqproto.simulator are links, which Path.rglob does not follow.
            for place, folders, names in os.walk(folder, followlinks=True):
                folders[:] = set(folders) - {"simulator"}
                for source in sorted(Path(place) / one for one in names if one.endswith(".py")):
                    file.write(source, Path(name) / source.relative_to(folder))
    return path


def main(arguments: list[str]) -> int:
    """The command; its status is 2 for misuse."""
    if len(arguments) != 1 or not arguments[0].endswith(".zip"):
        print("usage: python -m mqproto.captures.pipeline.engines.shipping FILE.zip", file=sys.stderr)
        return 2
    print(pack(Path(arguments[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
