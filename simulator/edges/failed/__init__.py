"""`mqproto failed`: all that has failed in one place, to be looked at, tried again, or said to be settled.

Read first: `failures.py`, then `desk.py`.
"""
