"""Facts that schemathesis needs in addition to a gateway's document.

Some headers depend on each other, which a schema cannot express. `st run` imports this module (SCHEMATHESIS_HOOKS), in
a separate process.
"""

from __future__ import annotations

import itertools
from typing import Any

import schemathesis

HAND_IN = "POST /queues/{NAME}/messages"
count = itertools.count()


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]
) -> None:
    """Correct the requests that should be accepted; in those that should be refused, change only the ids."""
    headers, meta = case.headers, case.meta
    if headers is None or meta is None or case.operation.label != HAND_IN:
        return
    is_valid = meta.generation.mode.is_positive
    if is_valid or headers.get("Idempotency-Key") == "0":
        headers["Idempotency-Key"] = f"order-{next(count)}"  # Else it belongs to another message already.
    if not is_valid:
        return
    if headers.get("MQ-Acknowledge") and not headers.get("MQ-Admin-Queue"):
        headers["MQ-Admin-Queue"] = "notes"
    if headers.get("MQ-Priority") and case.path_parameters.get("NAME") == "orders":
        case.path_parameters["NAME"] = "notes"  # The other is transactional.
    if str(headers.get("MQ-Body-Type", "")).startswith(("VT", "xml")):
        headers["MQ-Body-Type"] = "bytes"  # The body is no text that says such a value.
