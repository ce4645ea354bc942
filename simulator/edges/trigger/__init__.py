"""Calls a consumer for each message of a queue: once if possible, in order, whatever fails.

Read schedule.py first, which decides the next message, then judgment.py, which decides its outcome, and trigger.py,
which joins them. detection.py, with resolver.py, tells new messages from duplicates; callee.py calls consumers,
named.py finds functions; breaker.py holds the queue after failures, errorcopy.py makes copies for the error queue.
leadership.py chooses among several triggers, standing.py reports on them; telling.py reports ends of messages, for
gateways too. run.py is the process.
"""

from mqproto.simulator.edges.trigger.callee import BusinessError, Call

__all__ = ["BusinessError", "Call"]
