"""tshark with our dissector, for figures to compare ours with."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from captures.wireshark import dissector
from tests.bench.figures import BenchError

FIELDS: Final = (
    "frame.number",
    "tcp.stream",
    "msmq.base.packet_size",
    "msmq.base.time_to_reach_queue_s",
    "msmq.user.source_queue_manager",
    "msmq.user.message_id",
    "msmq.user.sent_time_s",
    "msmq.transaction.tx_sequence_number",
    "msmq.transaction.previous_tx_sequence_number",
)
"""A few of the columns that our table of packets has; with more of them, tshark takes longer."""


class Tshark:
    """tshark on one capture.

    Args:
        folder: for the dissector.
    """

    def __init__(self, program: str, folder: Path, capture: Path) -> None:
        script = folder / "msmq.lua"
        script.write_text(dissector(), "utf-8")
        fields = (word for name in FIELDS for word in ("-e", name))
        self._command = [program, "-n", "-X", f"lua_script:{script}", "-r", str(capture)]
        self._command += ["-Y", "msmq", "-T", "fields", *fields]

    @classmethod
    def found(cls, folder: Path, capture: Path) -> Tshark | None:
        """None where it is not installed."""
        program = shutil.which("tshark")
        return cls(program, folder, capture) if program else None

    def shown_s(self, frames: int, packets: int) -> float:
        """How long it takes to start, to read the first frames, and to show the packets in them.

        Raises:
            BenchError: it failed, or did not show all packets.
        """
        began_s = time.monotonic()
        done = subprocess.run(
            [*self._command, "-c", str(frames)], capture_output=True, text=True, errors="replace", check=False
        )
        took_s = time.monotonic() - began_s
        shown = done.stdout.count("\n")
        if done.returncode or shown != packets:
            why = (done.stderr.splitlines() or ["it said nothing"])[-1]
            raise BenchError(f"tshark showed {shown:,} of {packets:,} packets: {why}")
        return took_s
