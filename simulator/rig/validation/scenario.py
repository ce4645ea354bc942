"""The scenarios of a validation, with their actions and expectations, in the form of the files in `scenarios`, and the
outcomes of scenarios.

title = "A consumer that fails is called again, until it accepts"
heading = "Message Consumer Rules"      # the document that it tests
messages = 3
cues = ["fail", "fail"]                 # for each message's first call and second; then it is accepted

[expect]                                # how often each stage is reached, or how often at least
accepted = 3
attempted = 9
duplicates = ">=0"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from mqproto.base.errors import UsageError
from mqproto.simulator.base.screen import plain_table, wide_console
from mqproto.simulator.base.strict import strictly
from mqproto.simulator.rig.load.validator import Cue

STAGES: Final[dict[str, str]] = {
    "accepted": "messages that the first queue manager has accepted",
    "dropped": "submissions that the gateway has dropped as duplicates",
    "read": "times that a message was read from its queue",
    "attempted": "times that the trigger has called the consumer",
    "rolled_back": "times that the transaction of a read was rolled back",
    "committed": "messages that have left their queue for good",
    "error_queue": "messages in the error queue",
    "in_doubt": "messages of which nobody can tell whether they were processed",
    "validator": "messages that reached their final destination",
    "duplicates": "times that the final destination was given one again",
    "out_of_order": "messages that reached it before one that was sent earlier",
    "unaccounted": "messages that were answered 200, and nobody has them",
}
"""The counted stages, and their descriptions."""
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
UNLESS_SAID: Final[dict[str, int | str]] = {"unaccounted": 0}
"""The expected counts of stages for which a scenario does not give one. For stages that are missing here, any count is
accepted.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessKill:
    """A kill and a restart of one process: a node by its name, `gateway`, or `trigger`.

    when: the waypoint of the log lines to count, or `called` to count calls of the consumer.
    count: the number of these lines or calls after which the kill comes.
    """

    kill: Literal["sender", "intermediate", "destination", "gateway", "trigger"]
    when: str
    count: AtLeastOne = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationScenario:
    """One validation.

    title: what it shows, in a sentence.
    heading: the heading in the document whose rules it tests.
    messages: the number of messages that the producer sends.
    via: `gateway` to send over HTTP, each message with its own id; `client` to send directly to the node.
    unread: the number of times that the producer submits each message without reading the answer, before it submits the
        message once more.
    cues: the consumer's actions at a message's first call, its second call, and so on; afterwards it accepts the
        message.
    only: the number, counted from 0, of the only message to which the cues apply; by default they apply to all.
    absent: the number of reads that must be rolled back before the consumer starts to listen.
    attempts: the number of times that a message may be delivered.
    timeout_s: the time, in seconds, that the consumer may take.
    strikes: the kills, in order.
    expect: the expected count of each stage: a number, or a minimum such as `">=3"`.
    """

    title: str
    heading: str
    expect: dict[str, int | str]
    messages: int = 3
    via: Literal["gateway", "client"] = "gateway"
    unread: Count = 0
    cues: tuple[Cue, ...] = ()
    only: Count | None = None
    absent: Count = 0
    attempts: AtLeastOne = 20
    timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=86_400)] = 5.0
    strikes: tuple[ProcessKill, ...] = field(default=())

    def __post_init__(self) -> None:
        for stage, expected in self.expect.items():
            if stage not in STAGES:
                raise ValueError(f"expect.{stage}: no such stage; there are: {', '.join(STAGES)}")
            if isinstance(expected, str) and not expected.removeprefix(">=").isdecimal():
                raise ValueError(f'expect.{stage} = {expected!r}: write a number, or ">=3"')
        if not 1 <= self.messages <= 1_000:
            raise ValueError(f"messages = {self.messages}: must be 1 to 1,000")
        if self.only is not None and self.only >= self.messages:
            raise ValueError(
                f"only = {self.only}: messages are counted from 0, and there are {self.messages}"
            )
        if self.via == "client" and (self.unread or any(strike.kill == "gateway" for strike in self.strikes)):
            raise ValueError('via = "client": there is no gateway for unread or strikes')

    def expected(self, stage: str) -> int | str:
        """Return the expected count of a stage."""
        return self.expect.get(stage, UNLESS_SAID.get(stage, ">=0"))

    def holds(self, stage: str, count: int) -> bool:
        """Return whether a stage was reached as often as expected."""
        expected = self.expected(stage)
        if isinstance(expected, str):
            return count >= int(expected.removeprefix(">="))
        return count == expected


def shipped() -> list[str]:
    """Return the names of the scenarios that come with mqproto."""
    folder = resources.files("mqproto.simulator.rig.validation") / "scenarios"
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load(name_or_path: str) -> ValidationScenario:
    """Return a scenario: a shipped one by its name, or any other by its path, which ends in .toml.

    Raises:
        UsageError: there is no such scenario, or it is not valid.
    """
    path = resources.files("mqproto.simulator.rig.validation") / "scenarios" / f"{name_or_path}.toml"
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        if not path.is_file():
            raise UsageError(f"no file {name_or_path}")
    elif name_or_path not in shipped():
        raise UsageError(f"no scenario {name_or_path}; there are: {', '.join(shipped())}")
    try:
        return strictly(tomllib.loads(path.read_text("utf-8")), ValidationScenario)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{name_or_path} is not a scenario: {error}") from None


class Outcome(NamedTuple):
    """The outcome of a scenario.

    counts: the number of times that each stage was reached.
    trouble: why the scenario did not reach its end; empty if it did.
    promises: the broken promises, in words.
    logs: the folder of the logs, if a promise is broken.
    """

    name: str
    scenario: ValidationScenario
    counts: dict[str, int]
    trouble: str = ""
    promises: Sequence[str] = ()
    logs: str = ""

    @property
    def broken(self) -> list[str]:
        """The stages whose counts are not as expected."""
        return [stage for stage, count in self.counts.items() if not self.scenario.holds(stage, count)]

    @property
    def holds(self) -> bool:
        """Whether everything was as expected."""
        return not (self.trouble or self.broken or self.promises)


def show(outcomes: Sequence[Outcome]) -> None:
    """Print a row for each scenario, and the broken promises."""
    table = plain_table("", *(stage.replace("_", " ") for stage in STAGES))
    for outcome in outcomes:
        marks = {stage: "!" * (stage in outcome.broken) for stage in STAGES}
        table.add_row(outcome.name, *(f"{outcome.counts[stage]:,}{marks[stage]}" for stage in STAGES))
    wide_console().print(table, markup=False)
    for outcome in outcomes:
        for line in told(outcome):
            print(line)
    held = sum(outcome.holds for outcome in outcomes)
    print(f"{held} of {len(outcomes)} scenarios went as expected")


def told(outcome: Outcome) -> Iterator[str]:
    """Yield the broken stages and promises, in words."""
    if outcome.trouble:
        yield f"{outcome.name}: {outcome.trouble}"
    for stage in outcome.broken:
        expected = outcome.scenario.expected(stage)
        yield f"{outcome.name}: {STAGES[stage]}: {outcome.counts[stage]:,}, expected {expected}"
    for text in outcome.promises:
        yield f"{outcome.name}: {text}"
    if outcome.logs:
        yield f"{outcome.name}: logs are in {outcome.logs}"


def as_json(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return the outcomes in a form for programs."""
    return [
        {
            "scenario": outcome.name,
            "title": outcome.scenario.title,
            "heading": outcome.scenario.heading,
            "counts": outcome.counts,
            "expected": outcome.scenario.expect,
            "broken": outcome.broken,
            "promises": list(outcome.promises),
            "trouble": outcome.trouble,
            "logs": outcome.logs,
        }
        for outcome in outcomes
    ]
