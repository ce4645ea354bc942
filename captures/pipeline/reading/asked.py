"""Options for reading packets, which travel with the tasks.

Only the paths of keys travel, and each process reads the keys itself: so no private key gets into what an engine
sends, keeps or logs. On a cluster, keys are in the same place on each machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mqproto.captures.decode.security.keyring import KeyRing, read_keys


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of packets to read in addition to their fields.

    texts: whether to read the texts of bodies.
    keys: files and folders with keys for decryption and verification.
    """

    texts: bool = False
    keys: tuple[str, ...] = ()

    @property
    def ring(self) -> KeyRing | None:
        """Return the keys, as they are now.

        Raises:
            UsageError: as for `read_keys`.
        """
        if not self.keys:
            return None
        return _read(self.keys, tuple(_changed_ns(Path(path)) for path in self.keys))


@lru_cache(maxsize=1)
def _read(keys: tuple[str, ...], _changed: tuple[int, ...]) -> KeyRing:
    """Read the keys once in each process, and again if they have changed."""
    return read_keys(keys)


def _changed_ns(path: Path) -> int:
    """Return when a file, or the newest of a folder and its files, changed.

    Return 0 if that cannot be found out, as for a missing file, which `read_keys` reports.
    """
    try:
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        return max(file.stat().st_mtime_ns for file in files)
    except OSError:
        return 0
