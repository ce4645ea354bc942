"""Operators' questions and actions about messages: `mqproto audit`, `mqproto failed` and `mqproto erase`.

Read `mqproto/edge/custody.py` first, then `reading.py`, `failures.py` and `desk.py`.
"""
