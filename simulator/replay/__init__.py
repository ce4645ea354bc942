"""`mqproto replay`: a captured conversation, spoken anew to a live queue manager.

`captures/script.py` reads one side's part. rewrite.py changes what must differ, identity.py says who plays, receiver.py
takes what the peer sends; performance.py is all of that while it is played, without a socket. talk.py is one
connection, stage.py opens and accepts them, verbatim.py plays bytes instead. report.py compares, command.py is what
may be typed.
"""
