"""A standalone node: a single node that is not declared in any topology.

A file next to its store has its name, GUID and address. The first `mqproto node --name shop` creates the file. After
that, it can be edited like any other topology file.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.topology import places
from mqproto.simulator.topology.errors import TopologyError
from mqproto.simulator.topology.file import load, parse, read_address, shipped, state_folder, written_address
from mqproto.simulator.topology.model import Topology
from mqproto.simulator.topology.nodes import DEFAULT_PORT, NODE_NAME

DEFAULT_ADDRESS: Final = f"127.0.0.1:{DEFAULT_PORT}"


def node_alone(
    name: str, directory: Path | None = None, address: str | None = None, *, makes: bool = True
) -> tuple[Topology, Path]:
    """Return the topology of a standalone node, and the folder of its file and store.

    Args:
        makes: whether to create the folder and the file if they are missing.
        address: the `HOST` or `HOST:PORT` at which to listen; by default, a new node gets 127.0.0.1:1801.

    Raises:
        UsageError: the name is not valid; or the existing file is not that of this node alone, or has a different
            address.
    """
    if not re.fullmatch(NODE_NAME, name):
        raise TopologyError(f"--name {name!r}: a node's name has up to 63 letters, digits, - and _")
    if name in shipped():
        raise TopologyError(
            f"--name {name}: a topology that comes with mqproto has this name; choose another"
        )
    directory = state_folder(name) if directory is None else directory
    wanted = None if address is None else read_address(address, "--address")
    path = directory / f"{name}.toml"
    is_there = path.exists()
    host, port = wanted or read_address(DEFAULT_ADDRESS, "")
    text = _TEXT.format(name=name, guid=str(uuid.uuid4()).upper(), address=written_address(host, port))
    if makes and not is_there:
        places.make(directory)
        _write(path, text)
    topology = load(path) if makes or is_there else parse(text, path.name)
    if [*topology.nodes] != [name]:
        raise TopologyError(
            f"{path} is of {', '.join(topology.nodes)}, and not of {name} alone; name a directory"
        )
    listens = topology.nodes[name].address
    if wanted not in (None, listens):
        raise TopologyError(
            f"{name} listens on {listens[0]}:{listens[1]}, as {path} says: leave --address out, or change it there"
        )
    return topology, directory


_TEXT: Final = """\
# A node alone: `mqproto node --name {name}` starts it. More may stand here: simulator/topology/file.py
[node]
name = "{name}"
guid = "{guid}"
address = "{address}"
"""


def _write(path: Path, text: str) -> None:
    """Make the file, complete and private to its owner, unless another process makes it first."""
    part = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(part, path)
            except FileExistsError:
                return
        finally:
            part.unlink()
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise UsageError(f"{path} cannot be made ({error.strerror}): name another --directory") from None
