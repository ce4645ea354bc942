"""The program's declarations as Markdown. The function `name` yields the text that replaces `{{name}}` in a page."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import construct
from prometheus_client import Metric
from typer.main import get_command

from mqproto import wire
from mqproto.base import configuration
from mqproto.captures.pipeline.tables import runs
from mqproto.captures.pipeline.tables.schemas.tables import page as tables
from mqproto.routing.nexthops import MSMQ_PORT, PING_PORT
from mqproto.simulator.base.program import output
from mqproto.simulator.cli.cli import app
from mqproto.simulator.client import journal
from mqproto.simulator.console import serving
from mqproto.simulator.edges import options
from mqproto.simulator.edges.gateway.front import ProducerPolicy
from mqproto.simulator.edges.gateway.openapi import openapi
from mqproto.simulator.edges.gateway.refusals import MEANINGS
from mqproto.simulator.edges.history import tables as histories
from mqproto.simulator.edges.metrics import METRICS_PORT
from mqproto.simulator.edges.metrics.families import of_gateway, of_trigger
from mqproto.simulator.edges.trigger.telling import Offer
from mqproto.simulator.node import control
from mqproto.simulator.node.metrics.families import families
from mqproto.simulator.rig.load.validator import Cue
from mqproto.simulator.rig.validation.ends.ways import WAYS
from mqproto.simulator.rig.validation.scenario import ValidationScenario
from mqproto.simulator.storage import tables as stores
from mqproto.simulator.storage.care import export
from mqproto.simulator.topology import file, nodes
from mqproto.turn.waypoints import Waypoint
from tests import conformance, proportion
from tests.simulator.edges.test_metrics import EDGE, GATEWAY, TRIGGER
from tests.simulator.node.metrics.test_families import FACTS, WHOLE

__all__ = ["tables"]


def table(heads: str, rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield a Markdown table whose cells are escaped; `heads` are the column heads, separated by bars."""
    yield from ("", f"| {heads} |", "|---" * (heads.count("|") + 1) + "|")
    for row in rows:
        yield f"| {' | '.join(map(plain, row))} |"


def plain(said: object) -> str:
    """Return a text on one line, in which characters that have a meaning in Markdown are escaped."""
    return re.sub(r"([|<[*])", r"\\\1", " ".join(str(said).split()))


def statuses() -> Iterator[str]:
    """The exit statuses of commands."""
    rows = (
        (output.DONE, "done, or nobody reads the rest of the output"),
        (
            output.FINDING,
            "a finding, a broken promise, something that could not be done, or a bug in mqproto",
        ),
        (
            output.MISUSE,
            "misuse: what was typed cannot be, or names nothing that exists; or an extra is not installed",
        ),
        (output.INTERRUPTED, "interrupted by Ctrl-C"),
    )
    yield from table("exit status | ", rows)


def ports() -> Iterator[str]:
    """The addresses and ports at which programs listen by default."""
    rows = (
        (f"{MSMQ_PORT}, TCP", "a node, for other queue managers", "`--address`, or `port` of a topology"),
        (f"{PING_PORT}, UDP", "a node, for Pings", "`answer_pings` of a topology"),
        (f"{nodes.METRICS_PORT}, TCP", "a node's `/metrics`, `/live` and `/ready`", "`--metrics`"),
        (f"{options.PORT}, TCP", "a node's gateway, for producers", "`--gateway`, `--listen`"),
        (f"{METRICS_PORT}, TCP", "a gateway's or a trigger's `/metrics`", "`--metrics`"),
        (f"{serving.PORT}, TCP", "the console", "`--listen`"),
    )
    yield from table("port | whose | otherwise by", rows)


def commands() -> Iterator[str]:
    """Every command with its options.

    Options of `mqproto` itself come first. Where another command takes them, only their names are listed.
    """
    every = get_command(app)
    for typed, command in (("mqproto", every), *proportion.commands(every, "mqproto")):
        yield from ("", f"## {typed}", "", command.help, "")
        if shared := [f"`{each.opts[0]}`" for each in getattr(command, "shared", ())]:
            yield f"Of `mqproto` itself it takes {', '.join(shared)}."
            yield ""
        for each in command.params:
            names = [name if name[0] == "-" else name.upper() for name in [*each.opts, *each.secondary_opts]]
            usual = getattr(each.default, "value", each.default)
            said = each.help or ""
            is_shown = (
                isinstance(usual, (int, float, str, Path)) and not isinstance(usual, bool) and usual != ""
            )
            if is_shown and "by default" not in said.casefold():
                said += f" By default {usual}."
            yield f"- `{'`, `'.join(names)}`: {plain(said)}"


def definitions() -> Iterator[str]:
    """The fields of each construct definition."""
    for name, part in vars(wire).items():
        if isinstance(part, construct.Construct) and (layout := getattr(part, "layout", None)):
            yield from ("", f"## `{name}`", "", layout.section)
            named = [field for field in layout.subcons if field.name]
            yield from table("field | bytes", ((f"`{field.name}`", size(field)) for field in named))


def size(field: construct.Construct[Any, Any]) -> int | str:
    """Return the size of a field in bytes."""
    try:
        return field.sizeof()
    except construct.SizeofError:
        return "varies"


def topology() -> Iterator[str]:
    """The keys that a topology may have."""
    yield inspect.cleandoc(file.__doc__ or "").partition("\n")[2]


def settings() -> Iterator[str]:
    """The keys of [settings] in a topology, with the defaults and the docstrings of the fields."""
    tree = ast.parse(inspect.getsource(configuration.Settings)).body[0]
    assert isinstance(tree, ast.ClassDef)
    rows = []
    for field, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and field.value:
            about = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
            rows.append((f"`{ast.unparse(field.target)}`", f"`{ast.unparse(field.value)}`", about))
    yield from table("setting | by default | ", rows)


def http() -> Iterator[str]:
    """Each path of a gateway, with the request and the content of an answer with status 200."""
    described = openapi(ProducerPolicy(callbacks=Offer(frozenset({"shop.example"}))))
    for path, methods in described["paths"].items():
        for method, each in methods.items():
            yield from ("", f"## {method.upper()} {path}", "", plain(each["summary"]), "")
            yield plain(each.get("description", ""))
            given = (
                (f"`{one['name']}`", one["in"], one["description"]) for one in each.get("parameters", ())
            )
            yield from table("parameter | in | ", given) if "parameters" in each else ()
            content = each["responses"]["200"]["content"]["application/json"]["schema"]
            yield from (
                "",
                f"200: {each['responses']['200']['description']} {content.get('$ref', '')[21:]}",
                "",
            )
    for name, schema in described["components"]["schemas"].items():
        rows = ((f"`{key}`", each.get("description", "")) for key, each in schema["properties"].items())
        yield from ("", f"## {name}", "", plain(schema.get("description", "")))
        yield from table("field | ", rows)


def layouts() -> Iterator[str]:
    """The version numbers that tell a program whether it can read a file."""
    yield from table(
        "what | number | an earlier one",
        (
            ("protocol between a node and its clients", control.VERSION, "is refused by the client"),
            ("stores", stores.LAYOUT, "is upgraded when a node opens it"),
            ("journals of clients", journal.LAYOUT, "is upgraded when it is opened"),
            ("document histories", histories.LAYOUT, "is upgraded when it is opened"),
            ("exports of stores", export.VERSION, "is refused"),
            ("tables of captures", runs.VERSION, "is refused: analyse into another folder"),
        ),
    )


def refusals() -> Iterator[str]:
    """The answers of a gateway whose status is not 200."""
    rows = (
        (each.status, f"`{code}`", each.retry_after_s or "", each.text) for code, each in MEANINGS.items()
    )
    yield from table("status | code | Retry-After, s | title", rows)


def metrics() -> Iterator[str]:
    """The metrics of a node for Prometheus."""
    yield from families_of(families(WHOLE, FACTS))


def metrics_of_gateways() -> Iterator[str]:
    """The metrics of a gateway for Prometheus."""
    yield from families_of(of_gateway(EDGE, GATEWAY))


def metrics_of_triggers() -> Iterator[str]:
    """The metrics of a trigger for Prometheus."""
    yield from families_of(of_trigger(EDGE, TRIGGER))


def families_of(told: Iterable[Metric]) -> Iterator[str]:
    """A table of metrics.

    It shows the labels of each metric's last sample. The last sample of a histogram is its sum, which has no additional
    label.
    """
    ours = [each for each in told if each.name.startswith("mqproto_")]
    names = (f"`{each.name}{'_total' * (each.type == 'counter')}`" for each in ours)
    rows = ((", ".join(each.samples[-1].labels), each.type, each.documentation) for each in ours)
    yield from table(
        "metric | labels | type | ", ((name, *row) for name, row in zip(names, rows, strict=True))
    )


def waypoints() -> Iterator[str]:
    """The steps of a message."""
    yield from table("waypoint | ", ((each.value, each.meaning) for each in Waypoint))


def cues() -> Iterator[str]:
    """The cues in a message's body that tell a validating consumer what to do."""
    yield from table("cue | the consumer", ((f"`{cue.value}`", cue.meaning) for cue in Cue))


def scenario() -> Iterator[str]:
    """The keys of a validation's scenario."""
    said = inspect.cleandoc(ValidationScenario.__doc__ or "")
    rows = ((f"`{key}`", text) for key, text in re.findall(r"(?m)^(\w+): (.+(?:\n +.+)*)", said))
    yield from table("key | meaning", rows)


def ways() -> Iterator[str]:
    """Each way in which a message's journey can end or continue, and how an audit describes it."""
    rows = ((f"`{way.name}`", way.owner, ": ".join(filter(None, (way.end, way.reason)))) for way in WAYS)
    yield from table("way | who has the message then | what the audit says", rows)


def sections() -> Iterator[str]:
    """The sections of the specification that are not implemented, and why."""
    said = ((name, *each.values()) for name, each in conformance.load()["sections"].items() if len(each) > 1)
    yield from table("section | | what is missing", said)


def readings() -> Iterator[str]:
    """The questions that the specification leaves open, and our answers."""
    for each in conformance.load()["reading"]:
        yield from ("", f"## {each['question']}", "", each["answer"], "", ", ".join(each["sections"]))
