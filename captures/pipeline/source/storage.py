"""Opens captures where they are stored.

These are local files, given by path, and objects that pyarrow can reach, given by URI. pyarrow handles `s3://`,
`gs://`, `abfs://` and `hdfs://`, and finds credentials in its own ways. As with Amazon's own tools, AWS_ENDPOINT_URL_S3
or AWS_ENDPOINT_URL can name an S3 server other than Amazon's. A `file://` URI stands for a path.

Local files are mapped. Of an object, only the bytes that a task reads are fetched.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import sys
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from glob import glob, has_magic
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import CaptureError

URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""Matches a URI. Its scheme has at least two letters, because a single letter is a drive on other systems."""
S3: Final = ("s3", "s3a", "s3n")
"""The URI schemes of S3; two of them are Hadoop's."""
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
ALTERNATIVES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
"""Matches `{x,y}`, which Hadoop's patterns allow and Python's do not."""
REQUESTS: Final = 16
"""The number of small requests that are sent at the same time."""
FETCHES: Final = 4
"""The number of large requests that are sent at the same time, each for FETCHED_BYTES."""
FETCHED_BYTES: Final = 8 << 20
# Linux then reserves no memory for it; Python has a name for this since 3.13.
NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class Opened(NamedTuple):
    """A file or an object that was opened for reading, positioned at its beginning."""

    file: BinaryIO
    size_bytes: int


class Found(NamedTuple):
    """A file or an object that was found.

    is_meant: whether it was named explicitly, rather than found through a folder or a pattern.
    """

    path: str
    is_meant: bool


def is_remote(path: str) -> bool:
    """Whether a path is the URI of an object rather than a local file."""
    return URI.match(path) is not None


def may_be_there(path: str) -> bool:
    """Return whether a path or pattern matches anything on this machine.

    This is always true for objects, because only their server knows.
    """
    return is_remote(path) or os.path.lexists(path) or any(glob(one) for one in alternatives(path))


def is_pattern(path: str) -> bool:
    """Whether a path may stand for several names."""
    return has_magic(path) or ALTERNATIVES.search(path) is not None


def alternatives(path: str) -> list[str]:
    """Return the patterns that a pattern with {x,y} stands for.

    For any other pattern, return only the pattern itself.
    """
    found = ALTERNATIVES.search(path)
    if found is None:
        return [path]
    some = [path[: found.start()] + one + path[found.end() :] for one in found[1].split(",")]
    return [one for each in some for one in alternatives(each)]


def absolute(path: str) -> str:
    """Return a path that is valid from any folder. `file:` is removed; other URIs are left as they are.

    Raises:
        UsageError: the URI names a file on another machine.
    """
    if path.lower().startswith("file:"):
        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"{path} is a file of {parts.netloc}: three slashes begin one of this machine")
        path = unquote(parts.path)
    return path if is_remote(path) else os.path.abspath(path)


def is_same(path: str, other: str) -> bool:
    """Whether two existing paths refer to the same file."""
    if is_remote(path) or is_remote(other):
        return path == other
    return os.path.samefile(path, other)


@contextmanager
def opened(path: str) -> Iterator[Opened]:
    """Open a capture for reading.

    Raises:
        CaptureError: it is a pipe or a device.
        OSError: it cannot be opened.
        UsageError: objects of this kind cannot be reached from here.
    """
    if is_remote(path):
        place = place_of(path)
        with place.system.open_input_file(place.path) as remote:
            yield Opened(cast(BinaryIO, remote), remote.size())
        return
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise CaptureError(path, 0, "no file: a pipe or a device cannot be read in parts")
    with Path(path).open("rb", buffering=0) as file:
        yield Opened(cast(BinaryIO, file), os.fstat(file.fileno()).st_size)


def memory_of(path: str, source: Opened, size_bytes: int, low: int, high: int) -> mmap.mmap:
    """Return the first `size_bytes` of an opened capture in memory, as far as they are needed.

    Of an object, only the bytes from `low` to before `high` are fetched. The others are zeros, and take up no memory.
    """
    if not is_remote(path):
        return mmap.mmap(source.file.fileno(), size_bytes, access=mmap.ACCESS_READ)
    memory = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)

    def fetch(at: int) -> None:
        end = min(at + FETCHED_BYTES, high)
        some = cast(Any, source.file).read_at(end - at, at)
        if len(some) < end - at:
            reason = "the object ends here, and was longer; analyse it again"
            raise CaptureError(path, at + len(some), reason)
        memory[at:end] = some

    with ThreadPoolExecutor(FETCHES) as requests:
        list(requests.map(fetch, range(low, high, FETCHED_BYTES)))
    return memory


def pieces(path: str, source: Opened, places: Sequence[int], size_bytes: int) -> Iterator[bytes]:
    """Yield the `size_bytes` bytes that begin at each place; fewer at the end of the file."""
    if not is_remote(path):
        for place in places:
            source.file.seek(place)
            yield source.file.read(size_bytes)
        return
    if source.size_bytes <= len(places) * size_bytes:
        source.file.seek(0)
        whole = source.file.read()
        yield from (whole[place : place + size_bytes] for place in places)
        return
    remote: Any = source.file
    with ThreadPoolExecutor(min(REQUESTS, len(places))) as requests:
        yield from requests.map(lambda place: bytes(remote.read_at(size_bytes, place)), places)


def files_at(path: str) -> Iterator[Found]:
    """Yield the files that a path stands for.

    These are the file itself, all files in a folder, or all files that match a pattern with *, ?, [] or {}.

    Raises:
        UsageError, OSError: as for `opened`; or nothing matches the pattern.
    """
    if is_remote(path):
        yield from _objects_at(path)
    elif is_pattern(path) and not os.path.lexists(path):
        fitting = sorted({one for each in alternatives(path) for one in glob(each)})
        if not fitting:
            raise FileNotFoundError(None, "no file has a name that fits", path)
        for one in fitting:
            yield from (each._replace(is_meant=False) for each in files_at(one))
    elif os.path.isdir(path):
        for folder, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                yield Found(os.path.join(folder, name), is_meant=False)
    else:
        yield Found(path, is_meant=True)


class Place(NamedTuple):
    """An object or a folder of objects.

    root: the start of its URI.
    base: the equivalent of `root` in the file system `system`.
    name: what follows `root` or `base`.
    """

    system: Any
    root: str
    base: str
    name: str

    @property
    def path(self) -> str:
        """The path of the object or folder in the file system."""
        return f"{self.base}{self.name}".rstrip("/") or self.base

    def uri(self, path: str) -> str:
        """Return the URI of another path in the same file system, below the same root."""
        return self.root + path.removeprefix(self.base)


def _objects_at(uri: str) -> Iterator[Found]:
    from pyarrow.fs import FileSelector, FileType

    place = place_of(uri)
    info = place.system.get_file_info(place.path)
    if info.type == FileType.File or (info.type == FileType.NotFound and not is_pattern(place.name)):
        yield Found(uri, is_meant=True)
        return
    steps = place.path.split("/")
    patterns = [one.split("/") for one in alternatives(place.path)]
    known = next((count for count, step in enumerate(steps) if has_magic(step) or "{" in step), len(steps))
    if info.type == FileType.Directory:
        known = len(steps)
    every = FileSelector("/".join(steps[:known]), allow_not_found=True, recursive=True)
    paths = sorted(each.path for each in place.system.get_file_info(every) if each.type == FileType.File)
    if known < len(steps):
        paths = [path for path in paths if any(_fits(path.split("/"), pattern) for pattern in patterns)]
    if not paths and known < len(steps):
        raise FileNotFoundError(None, "no object has a name that fits", uri)
    yield from (Found(place.uri(path), is_meant=False) for path in paths)


def _fits(steps: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether a path, or a folder that contains it, matches the patterns, one for each part of the path."""
    return len(steps) >= len(patterns) and all(map(fnmatchcase, steps, patterns))


def place_of(uri: str) -> Place:
    """Return the place of an object, including the file system that reads it.

    Raises:
        UsageError: objects of this kind cannot be reached from here.
    """
    scheme, _, rest = uri.partition("://")
    authority, _, name = rest.partition("/")
    root = f"{scheme}://{authority}/"
    if scheme.lower() in S3:
        return Place(_s3(authority, endpoint(), _in_environment(REGIONS)), root, f"{authority}/", name)
    return Place(*_other(root), name)


def endpoint() -> str | None:
    """Return the S3 server to use; None if it is Amazon's."""
    return _in_environment(ENDPOINTS)


def _in_environment(names: Sequence[str]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


@cache
def _s3(bucket: str, endpoint: str | None, region: str | None) -> Any:
    from pyarrow.fs import S3FileSystem, resolve_s3_region

    if endpoint is None:
        return S3FileSystem(region=region or resolve_s3_region(bucket))
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    return S3FileSystem(endpoint_override=parts.netloc, scheme=parts.scheme, region=region)


@cache
def _other(root: str) -> tuple[Any, str, str]:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        system, base = FileSystem.from_uri(root)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(f"{root} cannot be reached: {why}; s3, gs, abfs, hdfs and file can") from None
    return system, root, f"{base.rstrip('/')}/"


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yield a file to write to in the block; if the block ends without an error, it replaces `target`.

    Missing folders are created. The file to write to has a unique name, so that two simultaneous runs of one task do
    not write to the same file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
