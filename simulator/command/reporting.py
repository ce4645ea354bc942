"""`mqproto report`: tables into a page for people, or the history of a message into lines."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqproto.base.errors import UsageError
from simulator.command.options import DONE, FINDING, JsonOption, print_json

if TYPE_CHECKING:
    from captures.pipeline.report.search import Sought
    from captures.pipeline.tables import Tables

PAGE: Final = "report.html"
NAMED_LIMIT: Final = 10
"""How many messages of a name are told of."""


def report(
    tables: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder of the tables: what was --out of mqproto analyse."),
    ],
    html: Annotated[
        Path | None,
        typer.Option("--html", help="The page to write; by default report.html in DIR.", show_default=False),
    ] = None,
    find: Annotated[
        str | None,
        typer.Option(
            "--find",
            "--message",
            "-m",
            metavar="TEXT",
            help="Write no page; say what became of messages, by a part of label or identifier.",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(help="Of those to this queue alone, by a part of its name.", show_default=False),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Of those over this queue manager alone, by a part of its name.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """What the tables of `mqproto analyse` say, as one HTML page that needs no network, and in short here.

    What is in the captures, what became of messages, routes, latency, sequences and their gaps, findings with the
    frames to look at. Up to 5,000 messages can be looked up in the page by label or identifier; --find looks among
    any number, without reading them all. Status 1 if somebody broke the protocol, or if there is no such message.

    \b
    mqproto report tables
    mqproto report tables --html monday.html
    mqproto report tables --find 'order 17' --host 10.0.0.7
    """
    # It would speak of fonts, and of where it keeps what it knows of them.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from captures.pipeline.report.search import Sought, prepare
    from captures.pipeline.tables import Tables
    from captures.pipeline.whole import whole

    opened = Tables(tables)
    if not (find is queue is host is None):
        if html is not None:
            raise UsageError("--find, --queue and --host write no page: leave out --html")
        return _tell(opened, Sought(find or "", queue or "", host or ""), as_json=as_json)
    from captures.pipeline.report.gather import gather
    from captures.pipeline.report.page import page
    from captures.pipeline.report.summary import as_json as facts_as_json
    from captures.pipeline.report.summary import lines

    facts = gather(opened)
    target = tables / PAGE if html is None else html
    with whole(target) as file:
        file.write_text(page(facts), "utf-8")
    if not facts.messages.every:
        prepare(opened)
    if as_json:
        print_json(facts_as_json(facts) | {"page": str(target)})
    else:
        for line in lines(facts):
            print(line)
        print(f"\n{target}: open it in a browser")
    return FINDING if facts.judgments.faults else DONE


def _tell(tables: Tables, sought: Sought, *, as_json: bool) -> int:
    """What became of the messages that are sought."""
    from captures.pipeline.report.gather import told
    from captures.pipeline.report.search import asked, named
    from captures.pipeline.report.summary import story, story_as_json

    found = named(tables, sought, NAMED_LIMIT + 1)
    rows, more = found[:NAMED_LIMIT], found[NAMED_LIMIT:]
    stories = told(tables, rows)
    if as_json:
        print_json([story_as_json(row, stories[row["message"]]) for row in rows])
        return DONE if rows else FINDING
    for row in rows:
        print("\n".join(story(row, stories[row["message"]])))
    if more:
        print("and more; name it by more of its label, or by its --queue or --host")
    if not rows:
        print(f"no message in {tables.folder} has all of this: {asked(sought)}")
    return DONE if rows else FINDING
