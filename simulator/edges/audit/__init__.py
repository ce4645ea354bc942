"""`mqproto audit`: who has each message that a gateway has answered 200, counted from stores, history and logs alone.

Read first: `ends.py`, then `reading.py`.
"""
