"""What is read of packets beside their fields, as somebody asked for it: it travels with the tasks.

Of keys only the paths travel, and each process reads them itself: so no private key comes into what an engine sends,
keeps or logs. On a cluster, they lie at the same place on each machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mqproto.captures.decode.security.keyring import KeyRing, read_keys


@dataclass(frozen=True, slots=True)
class Asked:
    """texts: whether what bodies say is read. keys: files and folders with keys that open and verify."""

    texts: bool = False
    keys: tuple[str, ...] = ()

    @property
    def ring(self) -> KeyRing | None:
        """The keys, as they are now.

        Raises:
            UsageError: as `read_keys`.
        """
        if not self.keys:
            return None
        return _read(self.keys, tuple(_changed_ns(Path(path)) for path in self.keys))


@lru_cache(maxsize=1)
def _read(keys: tuple[str, ...], _changed: tuple[int, ...]) -> KeyRing:
    """Read once by each process, and anew when they have changed."""
    return read_keys(keys)


def _changed_ns(path: Path) -> int:
    """When the newest of them changed; 0 where there is none, which `read_keys` says."""
    try:
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        return max(file.stat().st_mtime_ns for file in files)
    except OSError:
        return 0
