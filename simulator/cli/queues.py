"""`mqproto queue`, which makes, changes, deletes and lists queues of running nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.base.words import counted
from mqproto.formatname import parse_path_name
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, Printout, run_task
from mqproto.simulator.command.options import Commands, NodeOption, answered, only_node

if TYPE_CHECKING:
    from mqproto.simulator.client import Client
    from mqproto.simulator.client.client import ChangedOptions, MadeOptions
    from mqproto.simulator.node.control import QueueWish
    from mqproto.simulator.topology import DeclaredQueue, Node, Topology
    from mqproto.simulator.topology.places import Place

TRANSACTIONAL: Final = "transactional"
STRANGERS: Final = "strangers"
NEW: Final = "new"

app = Commands(
    help="Make, change, delete, list and export queues of running nodes. Changes survive restarts.",
)
QueueArgument = Annotated[str, ARGUMENT, r"A queue such as orders, 'shop\orders' or 'shop\private$\orders'."]


@dataclass
class Properties:
    """The properties that a user wants for a queue; None stands for the default, or for no change."""

    quota_kb: Annotated[
        int | None, "The limit for its messages, in KiB; 0 for no limit.", value(min=0, max=2**32 - 1)
    ] = None
    journal: Annotated[bool | None, "Whether received messages are copied to its journal."] = None
    journal_quota_kb: Annotated[
        int | None, "The limit for its journal, in KiB; 0 for no limit.", value(min=0, max=2**32 - 1)
    ] = None
    strangers: Annotated[bool | None, "Whether anyone from outside the topology may send to it."] = None
    authenticated: Annotated[bool | None, "Whether it accepts only signed messages."] = None
    privacy: Annotated[
        str | None,
        "body: accept only encrypted messages; none: accept only unencrypted ones; optional: accept both.",
        value("WHICH"),
    ] = None
    weak_ciphers: Annotated[
        list[str] | None,
        "A weak cipher to accept as well: RC2-128, RC4-128, RC2-40 or RC4-40; repeatable, `-` for none.",
        "--weak-cipher",
        value("NAME"),
    ] = None
    senders: Annotated[
        list[str] | None,
        "A sender to accept, by SID or certificate; repeatable, `-` for everybody.",
        "--sender",
        value("SID|SHA256"),
    ] = None

    def wish(self) -> ChangedOptions:
        """Return these properties as the options of a request to a node."""
        lists = {"weak_ciphers": _listed(self.weak_ciphers), "senders": _listed(self.senders)}
        return cast("ChangedOptions", {**vars(self), **lists})


def asked_for(text: str) -> QueueWish:
    """Parse a text of the form `NAME[:transactional][:strangers]`, and return the request for this queue.

    Raises:
        UsageError: the text has another form.
    """
    from mqproto.simulator.node.control import QueueWish
    from mqproto.simulator.topology.resolve import is_bare

    name, *properties = text.split(":")
    if not name or not set(properties) <= {TRANSACTIONAL, STRANGERS}:
        raise UsageError(
            f"--queue {text!r}: write a queue's name, and behind it :{TRANSACTIONAL}, :{STRANGERS} or both"
        )
    try:
        parse_path_name(f".\\{name}" if is_bare(name) else name)
    except FormatNameError as error:
        raise UsageError(str(error).removeprefix(".\\")) from None
    return QueueWish(name, transactional=TRANSACTIONAL in properties, strangers=STRANGERS in properties)


@app.command()
def create(
    place: Place,
    queue: QueueArgument,
    properties: Properties,
    like: Annotated[
        str | None,
        "Copy all properties of this queue except its number and GUID; other options take precedence.",
        value("QUEUE"),
    ] = None,
    transactional: Annotated[
        bool | None, "Accept only transactional messages. This cannot be changed later."
    ] = None,
    public: Annotated[
        str, "Its public GUID, or `new` for a random one. This cannot be changed later.", value("GUID")
    ] = "",
    node: NodeOption = None,
) -> Printout:
    """Make a queue. It is on disk when the command returns.

    \b
    $ mqproto queue create orders --transactional --topology shop
    shop\\private$\\orders is there: transactional,
    PRIVATE=963EBEB9-8A2F-504A-9728-78C61096BF80\\00010000
    $ mqproto queue create returns --like orders --topology shop
    """
    from mqproto.simulator.cli.likeness import like as with_properties_of, model_for

    wish: MadeOptions = {**properties.wish(), "transactional": transactional, "public": _guid(public)}
    host = None
    if like is not None:
        host, model = run_task(partial(model_for, place, node, like))
        wish = with_properties_of(model, wish)
    name = _maker(place, node, queue, host)
    made = run_task(partial(_of_node, place, name, lambda client: client.make(queue, **wish)))
    return _told(place.topology.nodes[name], made, "is there")


@app.command("set")
def change(place: Place, queue: QueueArgument, properties: Properties, node: NodeOption = None) -> Printout:
    """Change the given properties of a queue. Whether it is transactional cannot be changed.

    \b
    $ mqproto queue set orders --quota-kb 1024 --journal --topology shop
    """
    from mqproto.simulator.client.live import host_of

    wish = properties.wish()
    if all(value is None for value in wish.values()):
        raise UsageError(
            "say what is to change: --quota-kb, --journal, --strangers, --authenticated, ...: see --help"
        )
    name = run_task(partial(host_of, place, node, queue))
    changed = run_task(partial(_of_node, place, name, lambda client: client.change(queue, **wish)))
    return _told(place.topology.nodes[name], changed, "is changed")


@app.command()
def delete(place: Place, queue: QueueArgument, node: NodeOption = None) -> Printout:
    """Delete a queue, its journal and all their messages. Senders get the dead letters they asked for.

    \b
    $ mqproto queue delete orders --topology shop
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.client.live import host_of

    name = run_task(partial(host_of, place, node, queue))
    with working(f"deleting {queue}"):
        count = run_task(partial(_of_node, place, name, lambda client: client.delete(queue)))
    text = f"{queue} is gone, and {counted(count, 'message')} with it"
    return Printout({"queue": queue, "deleted": count}, [text])


@app.command("list")
def show(place: Place, node: NodeOption = None) -> Printout:
    """List the queues of each running node with their properties. Status 1 if no node runs. See also mqproto queues."""
    from mqproto.simulator.client.live import Away, ask_all

    found = run_task(partial(ask_all, place, lambda client: client.declared(), node))
    running = {name: queues for name, queues in found.items() if not isinstance(queues, Away)}
    status, complaints = (DONE, []) if running else answered(place, found)
    values = [
        {"node": name, **_values(place.topology.nodes[name], queue)}
        for name, queues in running.items()
        for queue in queues
    ]
    return Printout(values, partial(_show, place.topology, running) if running else (), status, complaints)


@app.command()
def export(place: Place, node: NodeOption = None) -> int:
    """Print the topology as TOML for --topology, with the queues that its nodes have now.

    For nodes that are not running or not named, it prints the queues that the file declares. Status 1 if no node runs.

    \b
    $ mqproto queue export --topology shop > shop-now.toml
    """
    from mqproto.simulator.cli.exporting import exported
    from mqproto.simulator.client.live import Away, ask_all

    found = run_task(partial(ask_all, place, lambda client: client.declared(), node))
    running = {name: None if isinstance(queues, Away) else queues for name, queues in found.items()}
    if not any(queues is not None for queues in running.values()):
        return Printout(None, (), *answered(place, found)).show(as_json=False)
    print(exported(place.topology, running), end="")
    return DONE


async def _of_node(place: Place, name: str, ask: Any) -> Any:
    from mqproto.simulator.client import connect

    client: Client
    async with connect(place.topology, name, place.directory) as client:
        return await ask(client)


def _maker(place: Place, node: str | None, queue: str, host: str | None) -> str:
    """Return the node on which to make a queue.

    It is the node that the queue's name or `node` names, or else `host`, or else the only node.

    Args:
        host: the node of the model queue; None if there is no model.

    Raises:
        UsageError: the queue's name and `node` name different nodes, or no node is given and there are several.
    """
    from mqproto.formatname import parse_path_name
    from mqproto.simulator.topology.resolve import is_bare, means_here

    computer = "." if is_bare(queue) else parse_path_name(queue).computer
    if not means_here(place.topology, computer):
        if node is not None and node.casefold() != computer.casefold():
            raise UsageError(f"{queue} is a queue of {computer}: leave --node {node} out")
        return place.topology.node_named(computer).name
    return place.topology.node_named(node).name if node is not None else host or only_node(place)


def _listed(typed: list[str] | None) -> list[str] | None:
    """Return the values of a repeated option: an empty list for `-`, and None if the option was not given."""
    return [] if typed == ["-"] else typed or None


def _guid(text: str) -> bytes | None:
    import uuid

    from mqproto.wire.guid import guid_from_text

    if not text:
        return None
    if text.casefold() == NEW:
        return uuid.uuid4().bytes_le
    try:
        return guid_from_text(text)
    except ValueError:
        raise UsageError(f"--public {text!r}: write a GUID, or `{NEW}`") from None


# Showing


def _told(node: Node, queue: DeclaredQueue, what: str) -> Printout:
    words = ", ".join((*_words(queue), str(node.format_name(queue))))
    text = f"{node.name}\\private$\\{queue.name} {what}: {words}"
    return Printout(_values(node, queue), [text])


def _words(queue: DeclaredQueue) -> Iterator[str]:
    """Yield a description of each property that a queue has, and nothing for those that it lacks."""
    yield TRANSACTIONAL if queue.transactional else "not transactional"
    if queue.quota_kb is not None:
        yield f"at most {queue.quota_kb:,} KiB"
    if queue.journal:
        limit = f" of at most {queue.journal_quota_kb:,} KiB" if queue.journal_quota_kb is not None else ""
        yield f"with a journal{limit}"
    if queue.strangers:
        yield "open to strangers"
    yield from queue.protection.words()


def _values(node: Node, queue: DeclaredQueue) -> dict[str, Any]:
    """Return all properties of a queue, in a form for programs."""
    from dataclasses import asdict

    from mqproto.wire.guid import guid_text

    values = asdict(queue)
    for key in ("public", "connector"):
        values[key] = None if values[key] is None else guid_text(values[key])
    return values | {"format_name": str(node.format_name(queue))}


def _show(topology: Topology, found: Mapping[str, Iterable[DeclaredQueue]]) -> None:
    from rich.markup import escape

    from mqproto.simulator.base.screen import plain_table, wide_console

    table = plain_table("queue")
    for column in ("properties", "format name"):
        table.add_column(column, justify="left", overflow="fold")
    for name, queues in found.items():
        for queue in queues:
            cells = (
                f"{name}\\private$\\{queue.name}",
                ", ".join(_words(queue)),
                str(topology.nodes[name].format_name(queue)),
            )
            table.add_row(*map(escape, cells))
    wide_console().print(table, markup=False)
