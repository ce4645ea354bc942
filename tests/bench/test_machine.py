from __future__ import annotations

from pathlib import Path

from tests.bench.machine import filesystem_of


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/disk xfs rw 0 0\n")
    assert filesystem_of(Path("/home/somebody"), mounts) == "ext4"
    assert filesystem_of(Path("/tmp"), mounts) == "tmpfs"
    assert filesystem_of(Path("/tmp/disk/stores"), mounts) == "xfs"
    assert filesystem_of(Path("/tmp/disks"), mounts) == "tmpfs"
    assert filesystem_of(Path("/tmp"), tmp_path / "none") == "an unknown file system"
