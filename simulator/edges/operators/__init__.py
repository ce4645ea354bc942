"""Operators' questions and actions about messages: `mqproto audit`, `mqproto failed` and `mqproto erase`.

Read first: `mqproto/edge/custody.py`, then `reading.py`, `failures.py` and `desk.py`.
"""
