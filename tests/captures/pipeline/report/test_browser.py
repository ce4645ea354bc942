"""The page in a real browser: its script runs, and answers what happened to a message."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from captures.pipeline.report.gather import gather
from captures.pipeline.report.page import page
from captures.pipeline.tables import Tables
from tests.captures.pipeline.report.tables import history, hops_of, made_up
from tests.captures.pipeline.report.test_page import HOSTILE, Reader

BROWSER: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
TIMEOUT_S: Final = 120

pytestmark = pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed: apt-get install chromium")


def browse(address: str, folder: Path, *arguments: str) -> str:
    """What a browser, started anew, prints."""
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless",
        "--disable-gpu",
        # Its sandbox needs what containers and root do not have; it opens a page of ours, without a network.
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--proxy-server=127.0.0.1:9",
        f"--user-data-dir={folder / 'profile'}",
        *arguments,
        address,
    ]
    environment = os.environ | {"HOME": str(folder)}
    done = subprocess.run(
        command, capture_output=True, timeout=TIMEOUT_S, cwd=folder, env=environment, check=True
    )
    return done.stdout.decode()


def seen(text: str, fragment: str, folder: Path) -> Reader:
    """The page after its script has run."""
    path = folder / "report.html"
    path.write_text(text, "utf-8")
    reader = Reader()
    reader.feed(browse(f"{path.as_uri()}#{fragment}", folder, "--dump-dom"))
    return reader


def test_a_message_that_is_searched_for_is_shown_with_its_way(
    gap_held: Tables, gap_held_page: str, tmp_path: Path
) -> None:
    row = gather(gap_held).messages.slowest[0]
    reader = seen(gap_held_page, f"search={quote(row['message'].lower())}", tmp_path)
    assert [button["data-id"] for button in reader.of("button")] == [row["message"]]
    said = reader.text
    assert "1 message lost once" in said
    assert "It came to its destination (127.0.0.3:1801) after 5.81 s, and its source was told so." in said
    assert "0 22:13:20.800000 crossed 127.0.0.1 → 127.0.0.2:1801 frame.number == 31 in" in said
    assert "after it waited 5.81 s in 127.0.0.2:1801: it is at its destination" in said
    assert "its source got the OrderAck" in said


def test_a_link_to_a_message_shows_it(dead_letters: Tables, tmp_path: Path) -> None:
    facts = gather(dead_letters)
    row = facts.messages.failed[0]
    reader = seen(page(facts), f"message={quote(row['message'])}", tmp_path)
    assert "It expired: an acknowledgment said " in reader.text


def test_texts_of_strangers_stay_text_when_the_script_shows_them(tmp_path: Path) -> None:
    row = history(1, label=HOSTILE, route=[HOSTILE, "b", "c"])
    tables = made_up(tmp_path / "out", {"histories": [row], "hops": hops_of(row)})
    reader = seen(page(gather(tables)), "search=alert", tmp_path)
    assert "1 message" in reader.text
    assert {str(image["src"])[:5] for image in reader.of("img")} == {"data:"}
    assert len(reader.of("script")) == 2


def test_the_page_can_be_seen(gap_held_page: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(gap_held_page, "utf-8")
    picture = tmp_path / "report.png"
    browse(path.as_uri(), tmp_path, f"--screenshot={picture}", "--window-size=600,3000")
    assert picture.read_bytes().startswith(b"\x89PNG")
    # One of nothing but white is some 10 kB.
    assert picture.stat().st_size > 50_000
