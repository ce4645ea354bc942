"""Wrong input of all kinds: the status is 2, and one line names what is wrong."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import pytest

from mqproto.simulator.base.program.environment import DIRECTORY_VARIABLE
from mqproto.simulator.base.program.settings import RENAMED
from mqproto.simulator.cli.cli import MISUSE
from tests.simulator.typed import in_process, mqproto

TYPED: Final = r"""
send q -b x --count 0                           => '--count' / '-c': must be greater than or equal to 1
send q -b x --count many                        => '--count' / '-c': must be a valid integer;
demo --edges --history bogus://x                => no document history is kept in bogus: its URL is
send q --cont 3                                 => No such option: --cont (Possible options: --count
send q --body                                   => '--body' requires an argument; see mqproto send --help
send q -b x --priority 8                        => '--priority'
send q -b x --application-tag 4294967296         => '--application-tag'
send q -b x --time-to-be-received 1e3           => '--time-to-be-received'
send q -b x --ack maybe --admin-queue a         => --ack maybe: there is arrival, receipt
send q -b x --encrypt --cipher ROT13            => --cipher ROT13: there is AES-256
send q -b x --json=yes                          => '--json' does not take a value
send q -b x -t nowhere                          => no topology is called 'nowhere'
-t nowhere --json send q -b x                   => no topology is called 'nowhere'
-t pair queues -t nowhere                       => no topology is called 'nowhere'
--json wireshark                                => --json may not stand before wireshark; see mqproto wireshark
--json trigger q --url http://127.0.0.1         => --json may not stand before trigger; see mqproto trigger
sned q -b x                                     => No such command 'sned'
receive q --timeout nan                         => '--timeout'
receive q --timeout 1s                          => '--timeout': must be a valid number;
peek q --count 501                              => '--count' / '-c': must be less than or equal to 500
top --interval inf                              => '--interval'
probe                                           => Missing argument 'HOST'
probe 127.0.0.1:99999                           => '127.0.0.1:99999' has no port from 1 to 65535
probe 127.0.0.1 --ping-port 0                   => '--ping-port'
queue create                                    => Missing argument 'QUEUE'
queue create q --quota-kb -1                    => '--quota-kb'
peers add p                                     => say where it is: --address HOST
store adopt sender --moved --copied             => say which: --moved
failed list --since yesterday                   => '--since': must be a valid datetime
failed retry --limit 0 --all                    => '--limit'
keys make sender --into x                       => No such option: --into (Possible options: --bits)
keys make sender --bits 5                       => a key of 5 bits: ask for 512 to 16,384
tokens make x --queue q                         => Missing option '--tokens'
service install cron                            => 'cron' is not a service: type one of node, trigger
gateway sender --rate nan                       => '--rate'
gateway sender --keep-ids inf                   => '--keep-ids'
gateway sender --listen 127.0.0.1:99999         => '127.0.0.1:99999' has no port
gateway sender --tls-key x                      => --tls-certificate and --tls-key belong together
trigger q                                       => say who is to be called: --url URL or --call MODULE:FUNCTION
trigger q --url nothing                         => 'nothing' is not a URL of HTTP
trigger q --call nothing                        => 'nothing': write module:function
trigger q --call os:nothing                     => os:nothing
trigger q --call os:getcwd --resolver x         => 'x': write module:function
trigger q --call os:getcwd --hook x             => 'x' is not a URL of HTTP
trigger q --url http://127.0.0.1 --headers-file /nowhere => /nowhere
trigger q --url http://127.0.0.1 --lease nan    => '--lease'
trigger q --url http://127.0.0.1 --parallel 65  => '--parallel': must be less than or equal to 64
node --name a/b                                 => --name 'a/b': a node's name has
node --name n --queue a:b                       => --queue 'a:b': write a queue's name
console --listen 127.0.0.1:x                    => --listen: '127.0.0.1:x' has no port
decode --limit 0 x                              => '--limit'
decode --connection -1 x                        => '--connection'
tables x --vacuum x                             => Invalid value 'x' for '--vacuum': must be a valid number; see
tables x --vacuum --keep 3                      => Invalid value '--keep' for '--vacuum': must be a valid number; see
tables x --keep x                               => No such option: --keep; it is --vacuum HOURS now; see
tables x --format json                          => '--format': 'json' is not one of 'parquet', 'csv'
simulate --seed -1                              => '--seed'
simulate --scenario /nowhere                    => '--scenario': path '/nowhere' does not exist
replay x --to 127.0.0.1 --timeout nan           => '--timeout'
replay x --to 127.0.0.1 --map a                  => --map 'a' is not a FROM=TO of two queues
fuzz peer x --as y                              => 'y' is not a GUID
"""
WRITTEN: Final = r"""
[node] name = 1 \ queue = "x"                   => queue = 'x': write a list
[node] name = "n" \ allow-remote = "yes"        => allow-remote = 'yes': write true or false
[node] nmae = "n"                               => 'nmae', and no such setting is known; did you mean 'name'
[node] node = "sender" \ gateway = "localhost"   => localhost is not an IP address: type --listen 127.0.0.1:8080
[trigger] queue = "q" \ factor = nan            => factor = nan: must be
[trigger] queue = "q" \ attempts = 0            => attempts = 0: must be greater than or equal to 1
[gateway] node = "n" \ rate = [1]               => rate = [1]: write a text or a number
[gateway] node = "n" \ free-port = true         => 'free-port', and no such setting is known; it is listen HOST:0 now
"""


def lines(text: str) -> list[tuple[str, str]]:
    """Return lines that a person types or writes, and the complaint about each of them."""
    return [
        (wrong.strip(), words.strip())
        for wrong, _, words in (row.partition("=>") for row in text.split("\n")[1:-1])
    ]


@pytest.mark.parametrize(("typed", "words"), lines(TYPED))
def test_what_is_typed_wrong_is_one_line(
    typed: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    done = in_process(*shlex.split(typed))
    assert words in done.complaint
    assert (done.status, done.out) == (MISUSE, "")


def test_what_is_typed_in_another_encoding_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")  # As in most locales.
    done = mqproto("service", "install", "node", "--user", "caf\udce9")
    assert done.status == MISUSE
    assert done.err.splitlines()[-1] == r"mqproto: 'caf\udce9' is not in UTF-8: type it in UTF-8"


@pytest.mark.parametrize(("written", "words"), lines(WRITTEN))
def test_what_is_written_wrong_is_one_line(written: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mqproto.toml"
    file.write_text(written.replace("] ", "]\n").replace(" \\ ", "\n"))
    done = in_process("config", "check", file)
    assert words in done.complaint
    assert (done.status, done.out) == (MISUSE, "")


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_former_name_is_refused_with_what_to_type(old: str, new: str) -> None:
    _, *command, option = old.split()
    done = in_process(*command, option)
    assert done.complaint.startswith(f"No such option: {option}; it is --{new} now; see mqproto ")
    assert done.status == MISUSE
