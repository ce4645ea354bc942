"""Calls a consumer for each message of a queue: once if possible, in order, whatever fails.

Read schedule.py first, which says whose turn it is, then judgment.py, what becomes of a message, and trigger.py, which
joins them. detection.py, with resolver.py, tells new messages from duplicates; callee.py is whom a trigger calls,
named.py finds functions; breaker.py says when nobody is called, errorcopy.py what goes to the
error queue. leadership.py says which of several triggers delivers, standing.py tells others of it; telling.py tells how
messages ended, for gateways too. run.py is the process.
"""

from mqproto.simulator.edges.trigger.callee import BusinessError, Call

__all__ = ["BusinessError", "Call"]
