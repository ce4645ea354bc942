"""Tokens that open queues, what their roles permit, and where tokens must not appear."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.simulator.edges.gateway.refusals import Code
from mqproto.simulator.edges.gateway.tokens import PRODUCER, Opened, TokenRole, Tokens, holders_in
from mqproto.simulator.topology import Topology
from tests.simulator.gateways import bearer, gateway, hashed, written_tokens
from tests.simulator.running import Log, running
from tests.simulator.typed import Done, in_process

SHOP, BANK = "s" * 32, "b" * 32
PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
ORDERS = "/queues/orders/messages"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens.toml"
    path.write_bytes(os.fsencode(text))
    path.chmod(mode)
    return path


# The file


def test_a_token_opens_its_queues_by_their_one_name(tmp_path: Path) -> None:
    path = written_tokens(tmp_path, s='queues = ["orders", "NOTES"]', b='queues = []\nrole = "read"')
    tokens = Tokens.read(path, str.lower)
    assert tokens.opened_by(SHOP) == Opened("s", {"orders", "notes"}, TokenRole.ALL, "s")
    every = Tokens.read(written_tokens(tmp_path, s='queues = ["*"]', b='queues = ["x", "*"]'), str.lower)
    assert [opened and opened.queues for opened in map(every.opened_by, (SHOP, BANK, "x"))] == [
        None,
        None,
        None,
    ]
    assert every.opened_by("x") is None
    assert tokens.opened_by(BANK) == Opened("b", set(), TokenRole.READ, "b")


@pytest.mark.parametrize(
    ("line", "whole"), [("", "s/17"), ('producer = "a"', "a/17"), ('producer = ""', "17")]
)
def test_ids_are_those_of_the_table_unless_it_names_another_producer(
    tmp_path: Path, line: str, whole: str
) -> None:
    opened = Tokens.read(written_tokens(tmp_path, s=f"queues = []\n{line}"), str).opened_by(SHOP)
    assert opened is not None
    assert (opened.whole("17"), opened.whole("")) == (whole, "")


@given(
    st.lists(st.tuples(st.from_regex(PRODUCER, fullmatch=True), st.text(PRINTABLE, min_size=1)), max_size=9)
)
def test_no_two_producers_have_an_id_in_common(ids: list[tuple[str, str]]) -> None:
    named = {(producer, key) for producer, key in ids if producer}
    assert len({Opened(producer).whole(key) for producer, key in named}) == len(named)


@pytest.mark.parametrize("name", ["my shop", "a/b", "x" * 65, "größe"])
def test_a_producer_has_a_name_that_ids_can_begin_with(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f'["{name}"]\nsha256 = "{hashed(SHOP)}"\nqueues = []\n', "utf-8")
    path.chmod(0o600)
    with pytest.raises(
        UsageError, match=r'its ids need a name of up to 64 .*: type producer = "NAME"'
    ) as refused:
        Tokens.read(path, str)
    assert str(refused.value).startswith(f"{path}: [{name}]: ")


@pytest.mark.parametrize("token", ["", "s" * 31, "s" * 33, hashed(SHOP), "\xff" * 32])
def test_another_token_is_nobodys(tmp_path: Path, token: str) -> None:
    assert Tokens.read(written_tokens(tmp_path, s="queues = []"), str).opened_by(token) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UsageError, match=r"others can read the tokens \(mode 6..\); chmod 600 it"):
        Tokens.read(written(tmp_path, "", mode=mode), str)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[shop", "Expected ']'"),
        (f'[shop]\ntoken = "{SHOP}"\nqueues = []', "unknown field `token`"),
        (f'[shop]\nsha256 = "{SHOP}"\nqueues = []', "matching regex"),
        (f'[shop]\nsha256 = "{hashed(SHOP)}"', "missing required field `queues`"),
        (f'[shop]\nsha256 = "{hashed(SHOP)}"\nqueues = []\nqueue = ""', "unknown field `queue`"),
        (f'[shop]\nsha256 = "{hashed(SHOP)}"\nqueues = []\nrole = "receive"', "Invalid enum value 'receive'"),
        ("\udcff", "this is not text in UTF-8"),
    ],
)
def test_a_file_that_is_something_else_is_said_to_be(tmp_path: Path, text: str, error: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=error) as refused:
        Tokens.read(path, str)
    assert SHOP not in str(refused.value)


def test_a_file_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory; name a file with the tokens"):
        Tokens.read(tmp_path / "nothing", str)


# The command


def tokens(*arguments: str | Path) -> Done:
    return in_process("tokens", *arguments)


def made(path: Path, name: str, *others: str) -> str:
    done = tokens("make", name, "--tokens", path, *others)
    assert done.status == 0, done.err
    return done.out.strip()


def day_of(path: Path, name: str) -> str:
    when = holders_in(path)[name].made
    assert when is not None
    return f"{when:%Y-%m-%d}"


def test_a_token_is_shown_once_and_its_file_has_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    shop = made(path, "shop", "--role", "send", "--queue", "orders", "--queue", "notes")
    desk = made(path, "desk", "--role", "read", "--queue", "orders", "--producer", "shop")
    assert shop != desk
    assert path.stat().st_mode & 0o777 == 0o600
    assert hashed(shop) in path.read_text()
    assert tokens("show", path).out.splitlines() == [
        f"shop: send, orders, notes, made {day_of(path, 'shop')}",
        f"desk: read, orders, with the ids of shop, made {day_of(path, 'desk')}",
    ]
    for said in (path.read_text(), tokens("show", path).out, tokens("show", path, "--json").out):
        assert not any(form in said for form in forms(shop))
    opened = Tokens.read(path, str).opened_by(desk)
    assert opened == Opened("shop", {"orders"}, TokenRole.READ, "desk")


def test_what_people_write_into_the_file_survives_another_token_and_its_end(tmp_path: Path) -> None:
    before = f'# mine\n[old]  # of June\nsha256 = "{hashed(BANK)}"\nqueues = []\n\n# the end\n'
    path = written(tmp_path, before)
    made(path, "shop", "--role", "all", "--queue", 'a "quoted" queue')
    assert path.read_text().startswith(before)
    assert tokens("revoke", "shop", "--tokens", path).out == "shop is revoked\n"
    assert path.read_text().strip() == before.strip()
    assert tokens("revoke", "old", "--tokens", path).status == 0
    assert path.read_text().split() == ["#", "mine", "#", "the", "end"]
    assert tokens("show", path).status == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("make", "old", "--role", "send", "--queue", "q"), "has a token old: take another name"),
        (("make", "new", "--queue", "q"), "--role is needed: type one of read, send, all"),
        (("make", "new", "--role", "receive", "--queue", "q"), "--role receive: type one of read, send, all"),
        (("make", "new", "--role", "send"), "--queue is needed"),
        (("make", "a b", "--role", "send", "--queue", "q"), "a token's name has up to 64"),
        (("revoke", "new"), "has no token new; there are: old"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    path = written_tokens(tmp_path, old="queues = []")
    before = path.read_text()
    done = tokens(*arguments, "--tokens", path)
    assert done.status == 2
    assert complaint in done.complaint
    assert path.read_text() == before
    assert [*tmp_path.iterdir()] == [path]


# At a gateway


def forms(token: str) -> list[str]:
    """Return the forms of a token that must not appear."""
    raw = token.encode()
    return [token, raw.hex(), base64.b64encode(raw).decode().rstrip("="), token.removeprefix("mqproto_")]


def contents(folder: Path) -> list[str]:
    """Return the contents of every file: logs, stores, journals, histories."""
    return [file.read_bytes().decode("latin-1") for file in folder.rglob("*") if file.is_file()]


async def test_roles_let_people_hand_in_or_ask_and_the_log_has_names_alone(
    topology: Topology, tmp_path: Path
) -> None:
    path, log = tmp_path / "tokens.toml", Log()
    shop = made(path, "shop", "--role", "send", "--queue", "orders")
    desk = made(path, "desk", "--role", "read", "--queue", "orders", "--producer", "shop")
    both = made(path, "both", "--role", "all", "--queue", "orders", "--producer", "shop")
    async with (
        running(topology, "destination", tmp_path, log),
        gateway(topology, tmp_path, tokens=path) as producer,
    ):
        answers = []
        for token, may in ((shop, {"POST"}), (desk, {"GET"}), (both, {"POST", "GET"}), ("x" * 32, set())):
            for method, target in (("POST", ORDERS), ("GET", f"{ORDERS}/17")):
                key = {"Idempotency-Key": "17"} if method == "POST" else {}
                answer = await producer.request(method, target, headers=bearer(token) | key)
                answers.append(answer.text)
                expected = 401 if not may else 200 if method in may else 403
                assert answer.status_code == expected, (method, answer.text)
                if expected == 403:
                    role = "send" if method == "POST" else "read"
                    assert f"needs a token with the role {role} or all" in answer.json()["detail"]
        assert (await producer.get("/health")).status_code == 200
    assert [line["holder"] for line in log.lines("accepted")] == ["shop"]
    assert [line["holder"] for line in log.lines("duplicate-dropped")] == ["both"]
    refused = [(line["reason"], line.get("holder")) for line in log.lines("refused")]
    assert refused == [
        (Code.FORBIDDEN, "shop"),
        (Code.FORBIDDEN, "desk"),
        (Code.UNAUTHORISED, None),
        (Code.UNAUTHORISED, None),
    ]
    for said in (log.getvalue(), *answers, *contents(tmp_path)):
        assert not any(form in said for token in (shop, desk, both) for form in forms(token))


async def test_a_token_that_is_revoked_opens_nothing_from_the_next_request_on(
    topology: Topology, tmp_path: Path
) -> None:
    path, log = tmp_path / "tokens.toml", Log()
    shop = made(path, "shop", "--role", "send", "--queue", "orders")
    async with (
        running(topology, "destination", tmp_path, log),
        gateway(topology, tmp_path, tokens=path) as producer,
    ):
        assert (await producer.post(ORDERS, headers=bearer(shop))).status_code == 200
        bank = made(path, "bank", "--role", "send", "--queue", "orders")
        assert (await producer.post(ORDERS, headers=bearer(bank))).status_code == 200
        assert tokens("revoke", "shop", "--tokens", path).status == 0
        assert (await producer.post(ORDERS, headers=bearer(shop))).status_code == 401
        path.write_text("[bank")  # A slip of the pen.
        assert (await producer.post(ORDERS, headers=bearer(bank))).status_code == 200
        assert (await producer.post(ORDERS, headers=bearer(shop))).status_code == 401
    [line] = log.lines("tokens-not-read")
    assert "Expected ']'" in line["reason"]
