"""`mqproto replay`: a captured conversation, spoken anew to a live queue manager.

`captures.script` reads one side's part; rewrite.py changes what must differ, receiver.py takes what the peer sends,
speaker.py has the sessions, verbatim.py the bytes as they were; report.py compares, command.py is what may be typed.
"""
