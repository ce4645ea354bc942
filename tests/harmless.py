"""Random changes to the code that no test notices because they are harmless, as far as `make mutants` has found
them.
"""

from __future__ import annotations

from typing import Final

EXPLAINED: Final[dict[tuple[str, str, str], str]] = {
    (
        "mqproto/edge/operations.py",
        "steps = 0 if before is None else behind(before, newest)",
        "steps = 1 if before is None else behind(before, newest)",
    ): "the first outcome has none before it that could be forgotten",
    (
        "mqproto/session/acknowledgment.py",
        "before = ahead(base, first) if ahead(base, first) < HALF_CIRCLE else 0",
        "before = ahead(base, first) if (ahead(base, first) <= HALF_CIRCLE) else 0",
    ): "half of all numbers apart, the function has returned above",
    (
        "mqproto/manager/identifiers.py",
        "left, share = self.most, 0",
        "left, share = self.most, 1",
    ): "the loop sets it for each group, and without a group nobody asks for it",
    (
        "mqproto/base/timers.py",
        "if heaped is None or deadline_ms < heaped:",
        "if heaped is None or (deadline_ms <= heaped):",
    ): "a second entry for the same deadline is passed over when the first is gone",
    (
        "mqproto/manager/ownsequences.py",
        "sequence.register(self._desk.writes)",
        "pass",
    ): "the first message that joins the queue tells the store of it as well",
    (
        "mqproto/manager/confirmations.py",
        "row = MessageRow(key, without_session_header(packet), message.user.message_id, final_ack=False)",
        "row = MessageRow(key, without_session_header(packet), message.user.message_id, final_ack=True)",
    ): "only a sequence asks its messages whether they want a FinalAck",
    (
        "mqproto/manager/sending.py",
        "message_id=0,",
        "message_id=1,",
    ): "the stamp puts another into each packet",
    (
        "mqproto/queues/lanes.py",
        "if back and self._ready and back[-1].position > self._ready[0].position:",
        "if back and self._ready and (back[-1].position >= self._ready[0].position):",
    ): "a window has each position once",
    (
        "simulator/storage/tables.py",
        "_see_that_none_lies_between(db, before + 1, first - 1)",
        "_see_that_none_lies_between(db, before + 2, first - 1)",
    ): "positions begin at 1, so nothing was ever put there",
    (
        "mqproto/base/ranges.py",
        "return self._last[at] + 1 if at >= 0 and self._last[at] > number else number + 1",
        "return self._last[at] + 1 if at >= 0 and (self._last[at] >= number) else number + 1",
    ): "a range that ends with the number has the next one behind it, too",
    (
        "simulator/storage/segments.py",
        "following = self._data.find(self._salt, following + 1)",
        "following = self._data.find(self._salt, following + 2)",
    ): "a salt is at two places in a row only if all its bytes are alike",
    (
        "simulator/storage/segments.py",
        "while following >= 0 and self._found(memoryview(self._data), following) is None:",
        "while following >= 1 and self._found(memoryview(self._data), following) is None:",
    ): "the search begins behind the header",
    (
        "mqproto/neighbours/connections.py",
        "self.awaited_s = 0",
        "self.awaited_s = 1",
    ): "the first second of 1970 is over, too",
    (
        "mqproto/manager/outbound.py",
        "if one.awaited_s > now.utc_s and one.how is not How.CALLED_US:",
        "if (one.awaited_s >= now.utc_s) and one.how is not How.CALLED_US:",
    ): "a neighbour whose answers are awaited until now is not called for them any more",
    (
        "simulator/storage/log.py",
        "or self.recent.memory_bytes > OVERDRAFT * limits.memory_bytes",
        "or (self.recent.memory_bytes >= OVERDRAFT * limits.memory_bytes)",
    ): "the limit says about how much it is, so a byte is neither here nor there",
    (
        "mqproto/neighbours/ping.py",
        "self._cookie = (self._cookie + 1) % 2**32",
        "self._cookie = ((self._cookie - 1)) % 2**32",
    ): "the next number is another one, whichever way they are counted",
    (
        "simulator/node/transport.py",
        "while size_bytes < limit_bytes:",
        "while (size_bytes <= limit_bytes):",
    ): "whoever asks for no bytes gets none, which ends the loop as well",
    (
        "simulator/node/clients/performers.py",
        "birth = self.birth_s.to_bytes(8)",
        "birth = self.birth_s.to_bytes(9)",
    ): "it is read whatever its length is",
}
"""The reasons why changes are harmless, keyed by the file's path, the line before the change, and the line after it."""
