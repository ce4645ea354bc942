"""Topologies as TOML. `load` reads a shipped topology by name, or any file.

```toml
name = "pair"                                   # by default the file's name
description = "Two queue managers."
producers_stay = true                           # each keeps to one gateway, so gateways need not share their ids

[node.sender]                                   # optional: guid, address = "host:port"; and ping = "host:port" if
                                                # the node does not answer Pings at UDP port 3527
[node.destination.queue.orders]                 # id and public may be given
transactional = true
quota_kb = 1024                                 # by default as much as the node may store
journal = true                                  # journal_quota_kb may be given

[[link]]
between = ["sender", "destination"]             # proxy = "host:port" may be given
tls = true                                      # by default the two speak without TLS

[node.sender.tls]                               # for each node that has a link with TLS
certificate = "sender.pem"                      # paths are relative to this file
key = "sender.key"
address = "127.0.0.1:1811"                      # a listener of its own; never port 1801 or the node's other one

[route.sender]                                  # only if the shortest way is not wanted
destination = "destination"

[site.north]                                    # sites decide the next hop, without links and routes
gates = ["a", "b"]                              # in order of preference

[[routing_link]]
between = ["north", "south"]
cost = 3                                        # 1 to 999999, by default 1

[node.a]
site = "north"                                  # or several: ["north", "south"]
routing_server = true                           # out_routing_servers, in_routing_servers = ["c"] may be given

[node.b]
readers = "ops"                                 # an operating-system group that may read, but change nothing
readers_folder = "/run/mqproto-ops"             # the folder of the group's socket, by default a temporary one
metrics = "127.0.0.1:9180"                      # where it answers /metrics, /live and /ready over HTTP
traces = "http://127.0.0.1:4318"                # the collector that gets the spans of messages with a traceparent
gateway = { listen = "127.0.0.1:8080" }         # where it takes messages over HTTP, with mqproto gateway's options
from = ["10.0.0.0/8"]                           # where it opens sessions from, or "any"; by default its own host

[strangers]                                     # queue managers outside the topology
hear = ["10.0.0.0/8"]                           # the addresses at which they are answered, by default "any"
call = ["10.0.0.7"]                             # hosts to connect to if a stranger asks for an answer there

[node.b.queue.public]
strangers = true                                # strangers may send to it

[node.b.queue.orders]                           # a queue's requirements for messages
authenticated = true                            # only signed messages
privacy = "body"                                # only encrypted messages; "none": no encrypted ones; "optional": both
weak_ciphers = ["RC4-128"]                      # RC2-128, RC4-128, RC2-40 and RC4-40 are accepted only if named
senders = ["S-1-5-21-1-2-3-1000"]               # the allowed senders: SIDs, or certificates by their SHA-256

[node.b.queue.to-mainframe]                     # a connector queue: for a foreign system, which a program serves
connector = "6F9619FF-8B86-D011-B42D-00C04FC964FF"  # the system's GUID; CONNECTOR=GUID is this queue

[node.b.queue.to-mainframe-xact]                # and CONNECTOR=GUID;XACTONLY the one for transactional messages
connector = "6F9619FF-8B86-D011-B42D-00C04FC964FF"
transactional = true

[node.b]
keys = "b.public"                               # the folder of its public keys, as `mqproto keys make` writes it

[node.b.private_keys]                           # those not in b.keys: aes, enhanced, base, signing, user-NAME
signing = "signing.pem"                         # PEM, with its certificate

[user.alice]                                    # users, and the certificates that are known to be theirs
sid = "S-1-5-21-1-2-3-1000"
certificates = ["alice.cer"]

[settings]                                      # the fields of mqproto.base.configuration.Settings, for all nodes
order_ack_timeout_ms = 50

[node.sender.settings]                          # and for one node
window_size = 16

[[fault]]                                       # of a node, or `between` two nodes
at_s = 2
action = "kill"
node = "destination"
for_s = 1.5
```
A standalone node, which does not belong to a declared network, has one table `[node]` with its
name, and a GUID that no other node has:

```toml
[node]
name = "shop"
guid = "6F9619FF-8B86-D011-B42D-00C04FC964FF"
address = "127.0.0.1:1801"                      # everything else as in [node.shop]

[node.queue.orders]
transactional = true
```
`mqproto node --name shop` writes such a file (alone.py). Errors name the file and the key, and say what to write
instead.
"""

from __future__ import annotations

import math
import os
import re
import threading
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.queues.protection import OPTIONAL, Protection
from mqproto.routing import PING_PORT, RoutingLink, Site
from mqproto.routing.peers import ANYWHERE
from mqproto.simulator.base.traces.asked import checked_collector
from mqproto.simulator.topology.errors import TopologyError, nearest
from mqproto.simulator.topology.model import Action, Fault, Link, Strangers, Topology, User
from mqproto.simulator.topology.nodes import (
    DEFAULT_PORT,
    FIRST_IDENTIFIER,
    METRICS_PORT,
    NODE_NAME,
    DeclaredQueue,
    Node,
    Tls,
)
from mqproto.wire.guid import Guid, guid_from_text

_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "mqproto:topology")

KEY_USES: Final = r"aes|enhanced|base|signing|user-[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""A pattern that matches the uses of private keys."""

GATEWAY_FILES: Final = ("tokens", "tls_certificate", "tls_key", "tls_clients", "callback_secrets")
"""The options of a gateway that name files."""
Table = dict[str, Any]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class _File(msgspec.Struct):
    name: str = ""
    description: str = ""
    producers_stay: bool = False
    node: dict[str, Any] = {}
    link: list[Table] = []
    route: dict[str, dict[str, str]] = {}
    site: dict[str, Table] = {}
    routing_link: list[Table] = []
    settings: Table = {}
    fault: list[Table] = []
    strangers: Table = {}
    user: dict[str, Table] = {}


class _Strangers(msgspec.Struct):
    hear: list[str] = msgspec.field(default_factory=lambda: [ANYWHERE])
    call: list[str] = []


class _Node(msgspec.Struct, rename={"origins": "from"}):
    guid: str | None = None
    address: str | None = None
    origins: list[str] = []
    ping: str | None = None
    queue: dict[str, Table] = {}
    settings: Table = {}
    tls: Table | None = None
    keys: str | None = None
    private_keys: dict[str, str] = {}
    readers: str = ""
    readers_folder: str | None = None
    metrics: str | None = None
    gateway: Table | None = None
    traces: str = ""
    site: str | list[str] = []
    routing_server: bool = False
    out_routing_servers: list[str] = []
    in_routing_servers: list[str] = []


class _Queue(msgspec.Struct):
    transactional: bool = False
    id: Annotated[int, msgspec.Meta(ge=FIRST_IDENTIFIER, lt=2**32)] | None = None
    public: str | bool = False
    quota_kb: Annotated[int, msgspec.Meta(ge=1, lt=2**32)] | None = None
    journal: bool = False
    journal_quota_kb: Annotated[int, msgspec.Meta(ge=1, lt=2**32)] | None = None
    strangers: bool = False
    authenticated: bool = False
    privacy: str = OPTIONAL
    weak_ciphers: list[str] = []
    senders: list[str] = []
    connector: str | None = None


class _User(msgspec.Struct):
    sid: str
    certificates: list[str] = []


class _Tls(msgspec.Struct):
    certificate: str
    key: str
    address: str


class _Link(msgspec.Struct):
    between: tuple[str, str]
    proxy: str | None = None
    tls: bool = False


class _Site(msgspec.Struct):
    gates: list[str] = []


class _RoutingLink(msgspec.Struct):
    between: tuple[str, str]
    cost: int = 1


class _Fault(msgspec.Struct):
    at_s: Seconds
    action: Action
    node: str | None = None
    between: tuple[str, str] | None = None
    for_s: Seconds | None = None


def shipped() -> list[str]:
    """Return the names of the topologies that come with mqproto."""
    folder = resources.files("mqproto.simulator.topology") / "shipped"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load(name_or_path: str | Path, directory: Path | None = None) -> Topology:
    """Read a topology, given by its name or path.

    A shipped topology, or that of a standalone node, is given by its bare name. Any other topology is given by its
    path, which ends in .toml.

    directory: the folder with the file of a standalone node, if it is not the usual one.

    Raises:
        TopologyError: there is no such topology, or it is not valid; the text names the file.
    """
    path = Path(name_or_path)
    if path.suffix == ".toml":
        try:
            text = path.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise TopologyError(f"{path}: {reason}; or name a shipped one: {', '.join(shipped())}") from None
        return replace(parse(text, path.name, path.parent), typed=str(path))
    name = str(name_or_path)
    file = f"{name}.toml"
    if name not in shipped():
        return _load_alone(name, (state_folder(name) if directory is None else directory) / file)
    return parse((resources.files("mqproto.simulator.topology") / "shipped" / file).read_text("utf-8"), file)


def _load_alone(name: str, path: Path) -> Topology:
    if re.fullmatch(NODE_NAME, name) and path.is_file():
        return replace(load(path), typed=name)
    text = f"no topology is called {name!r}; {nearest(name, shipped())}; a file of your own ends in .toml"
    if re.fullmatch(NODE_NAME, name):
        text += f", and `mqproto node --name {name}` makes a node alone"
    raise TopologyError(text)


def state_folder(name: str) -> Path:
    """Return the default folder for the stores of a topology's nodes.

    The file of a standalone node is in the same folder.
    """
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "mqproto" / name


def parse(text: str, file: str, folder: Path = Path()) -> Topology:
    """Make a topology from TOML.

    file: the name of the TOML in errors; without its suffix, the default name of the topology.
    folder: the folder to which paths in the text are relative.
    """
    try:
        return _topology(tomllib.loads(text), file.removesuffix(".toml"), folder)
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(f"{file}: {error}; mend the TOML") from None
    except UsageError as error:
        raise TopologyError(f"{file}: {error}") from None


def _topology(table: Table, default_name: str, folder: Path) -> Topology:
    top = _convert(table, _File, "")
    name = top.name or default_name
    if isinstance(top.node.get("name"), str):
        top.node = _alone(top.node)
    if not top.node:
        raise TopologyError("there are no nodes; begin with [node.sender]")
    faults = [_convert(fault, _Fault, f"fault {number}") for number, fault in enumerate(top.fault, 1)]
    return Topology(
        name=name,
        description=top.description,
        producers_stay=top.producers_stay,
        strangers=_strangers(_convert(top.strangers, _Strangers, "strangers")),
        nodes={
            node: _node(name, number, node, _convert(entry, _Node, f"node.{node}"), top.settings, folder)
            for number, (node, entry) in enumerate(top.node.items(), 1)
        },
        links=tuple(
            _link(_convert(link, _Link, f"link {number}"), f"link {number}")
            for number, link in enumerate(top.link, 1)
        ),
        routes=top.route,
        sites=tuple(
            Site(site, tuple(_convert(entry, _Site, f"site.{site}").gates))
            for site, entry in top.site.items()
        ),
        routing_links=tuple(
            _routing_link(_convert(link, _RoutingLink, f"routing_link {number}"))
            for number, link in enumerate(top.routing_link, 1)
        ),
        users=tuple(
            _user(user, _convert(entry, _User, f"user.{user}"), folder) for user, entry in top.user.items()
        ),
        faults=tuple(Fault(**msgspec.structs.asdict(fault)) for fault in faults),
    )


def _alone(table: Table) -> dict[str, Table]:
    """Return the table `[node]` of a standalone node, keyed by the node's name as in any topology.

    The table must have a GUID; none is derived from the node's name.
    """
    name, *others = table.pop("name"), *table
    if "guid" not in others:
        guid = str(uuid.uuid4()).upper()
        raise TopologyError(f'node: a node alone has a GUID that no other has; add guid = "{guid}"')
    return {name: table}


def _node(topology: str, number: int, name: str, entry: _Node, common: Table, folder: Path) -> Node:
    where = f"node.{name}"
    host, port = read_address(entry.address or f"127.0.0.{number}", where)
    return Node(
        name=name,
        guid=_guid(entry.guid, f"{where}.guid") if entry.guid else _derived(topology, name),
        host=host,
        port=port,
        origins=tuple(entry.origins),
        ping=read_address(entry.ping, f"{where}.ping", PING_PORT) if entry.ping else None,
        queues=_queues(topology, name, entry.queue),
        settings=_settings({"settings": common, f"{where}.settings": entry.settings}),
        tls=_tls(entry.tls, f"{where}.tls", folder) if entry.tls is not None else None,
        keys=None if entry.keys is None else (folder / entry.keys).absolute(),
        private_keys=_private_keys(entry.private_keys, f"{where}.private_keys", folder),
        readers=entry.readers,
        readers_folder=(folder / entry.readers_folder).absolute() if entry.readers_folder else None,
        metrics=read_address(entry.metrics, f"{where}.metrics", METRICS_PORT) if entry.metrics else None,
        gateway=None if entry.gateway is None else _gateway(entry.gateway, folder),
        traces=_collector(entry.traces, f"{where}.traces") if entry.traces else "",
        sites=(entry.site,) if isinstance(entry.site, str) else tuple(entry.site),
        routing_server=entry.routing_server,
        out_routing_servers=tuple(entry.out_routing_servers),
        in_routing_servers=tuple(entry.in_routing_servers),
    )


def _gateway(table: Table, folder: Path) -> Table:
    """Return the options of a gateway, with the names of files made absolute."""
    return {
        name: str((folder / value).absolute()) if name in GATEWAY_FILES else value
        for name, value in table.items()
    }


def _collector(url: str, where: str) -> str:
    try:
        return checked_collector(url, where)
    except UsageError as error:
        raise TopologyError(str(error)) from None


def _private_keys(named: Mapping[str, str], where: str, folder: Path) -> dict[str, Path]:
    for use in named:
        if not re.fullmatch(KEY_USES, use):
            raise TopologyError(f"{where}.{use}: name keys aes, enhanced, base, signing or user-NAME")
    return {use: (folder / name).absolute() for use, name in named.items()}


def _tls(table: Table, where: str, folder: Path) -> Tls:
    entry = _convert(table, _Tls, where)
    host, port = read_address(entry.address, f"{where}.address")
    certificate, key = ((folder / path).absolute() for path in (entry.certificate, entry.key))
    return Tls(certificate=certificate, key=key, host=host, port=port)


def _queues(topology: str, node: str, tables: Mapping[str, Table]) -> dict[str, DeclaredQueue]:
    where = f"node.{node}.queue"
    entries = {name: _convert(table, _Queue, f"{where}.{name}") for name, table in tables.items()}
    taken = {entry.id for entry in entries.values()}
    free = (number for number in count(FIRST_IDENTIFIER) if number not in taken)
    queues = {}
    for name, entry in entries.items():
        public = _derived(topology, node, name) if entry.public is True else None
        if isinstance(entry.public, str):
            public = _guid(entry.public, f"{where}.{name}.public")
        queues[name] = DeclaredQueue(
            name=name,
            identifier=next(free) if entry.id is None else entry.id,
            transactional=entry.transactional,
            public=public,
            quota_kb=entry.quota_kb,
            journal=entry.journal,
            journal_quota_kb=entry.journal_quota_kb,
            strangers=entry.strangers,
            protection=_protection(entry, f"{where}.{name}"),
            connector=_foreign(entry.connector, f"{where}.{name}.connector"),
        )
    return queues


def _protection(entry: _Queue, where: str) -> Protection:
    try:
        return Protection(entry.authenticated, entry.privacy, tuple(entry.weak_ciphers), tuple(entry.senders))
    except UsageError as error:
        raise TopologyError(f"{where}: {error}") from None


def _user(name: str, entry: _User, folder: Path) -> User:
    return User(name, entry.sid, tuple((folder / path).absolute() for path in entry.certificates))


def _link(entry: _Link, where: str) -> Link:
    return Link(*entry.between, read_address(entry.proxy, where) if entry.proxy else None, entry.tls)


def _strangers(entry: _Strangers) -> Strangers:
    return Strangers(hear=tuple(entry.hear), call=tuple(entry.call))


def _routing_link(entry: _RoutingLink) -> RoutingLink:
    return RoutingLink(*entry.between, entry.cost)


def _settings(tables: Mapping[str, Table]) -> Settings:
    """Merge the settings of several tables, keyed by their places in the file. Later tables take precedence."""
    known = {setting.name: setting for setting in fields(Settings)}
    values: Table = {}
    for where, table in tables.items():
        for key, value in table.items():
            if key not in known:
                raise TopologyError(f"{where}: unknown setting {key!r}; {nearest(key, known)}")
            whole = known[key].type in ("int", "int | None")
            if known[key].type == "bool":
                if not isinstance(value, bool):
                    raise TopologyError(f"{where}.{key}: {value!r} is neither true nor false")
                values[key] = value
                continue
            if known[key].type == "str":
                if not isinstance(value, str):
                    raise TopologyError(f"{where}.{key}: {value!r} is not text; write it in quotes")
                values[key] = value
                continue
            # A bool is an int in Python, but never meant as one.
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise TopologyError(f"{where}.{key}: {value!r} is not a {'whole ' if whole else ''}number")
            if not math.isfinite(value):
                raise TopologyError(
                    f"{where}.{key}: {value!r} is not a number to wait for; write a finite one"
                )
            values[key] = value
    try:
        return Settings(**values)
    except UsageError as error:
        raise TopologyError(f"settings: {error}") from None


def read_address(text: str, where: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """Read `host`, `host:port` or `[::1]:port`. In errors, `where` is the place of the text.

    Raises:
        TopologyError: the text has none of these forms.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536):
        raise TopologyError(f"{where}: {text!r} has no port from 1 to 65535; write host:port")
    if host.isdigit():
        raise TopologyError(f"{where}: {text!r} has no host; write host:port, such as 127.0.0.1:{host}")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not host or (":" in host and not bracketed) or not host.isprintable() or " " in host:
        raise TopologyError(f"{where}: {text!r} is not an address; write host:port, an IPv6 host in brackets")
    return host, int(port)


def written_address(host: str, port: int) -> str:
    """Return the text that `read_address` reads as this host and port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _guid(text: str, where: str) -> Guid:
    try:
        return guid_from_text(text)
    except ValueError:
        raise TopologyError(f"{where}: {text!r} is not a GUID; leave it out to have one made") from None


def _foreign(text: str | None, where: str) -> Guid | None:
    try:
        return None if text is None else guid_from_text(text)
    except ValueError:
        raise TopologyError(f"{where}: {text!r} is not a GUID; write that of the foreign system") from None


def _derived(*names: str) -> Guid:
    """Return a GUID that depends only on the names.

    It is the same on any machine, each time that the topology is read.
    """
    return Guid(uuid.uuid5(_NAMESPACE, "/".join(names)).bytes_le)


Entry = TypeVar("Entry", bound=msgspec.Struct)
ONE_TABLE: Final = "Expected array, got object"
NO_ACTION: Final = "Invalid enum value "
"""msgspec's words for one table where there may be several, and for an unknown fault."""
_reading: Final = threading.Lock()
"""A lock that is held while msgspec may inspect the fields of a Struct for the first time.

Without it, two threads that do this at once can crash the process, because one of them may find the Struct without its
types. All threads of a program may connect at once.
"""


def _convert(table: object, kind: type[Entry], where: str) -> Entry:
    """Convert a table to a record; the TopologyError for an invalid table names the place and the key."""
    if not isinstance(table, dict):
        raise TopologyError(f"{where}: this is not a table; begin it with [{where}]")
    for key in table:
        if key not in kind.__struct_encode_fields__:
            place = f"{where}: " if where else ""
            raise TopologyError(f"{place}unknown key {key!r}; {nearest(key, kind.__struct_encode_fields__)}")
    try:
        with _reading:
            return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        # msgspec says: Expected `int`, got `str` - at `$.id`
        reason, _, key = str(error).replace("`", "").partition(" - at $")
        if not where and reason == ONE_TABLE:
            reason += f"; write [[{key[1:]}]], once for each"
        elif reason.startswith(NO_ACTION):
            reason += f"; {nearest(reason.removeprefix(NO_ACTION), [*map(str, Action)])}"
        raise TopologyError(f"{where}{key}: {reason[0].lower()}{reason[1:]}".lstrip(".:")) from None
