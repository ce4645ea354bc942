"""Calls a consumer for each message of a queue, in order despite failures, and only once if possible.

Read schedule.py first, which decides the next message, then judgment.py, which decides its outcome, and trigger.py,
which joins them. detection.py, with resolver.py, distinguishes new messages from duplicates. callee.py calls consumers,
and named.py finds functions. breaker.py holds the queue after failures, and errorcopy.py makes copies for the error
queue. leadership.py chooses among several triggers, and standing.py reports on them. telling.py reports the ends of
messages, also for gateways. run.py is the process.
"""

from mqproto.simulator.edges.trigger.callee import BusinessError, Call

__all__ = ["BusinessError", "Call"]
