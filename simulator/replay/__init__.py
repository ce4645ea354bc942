"""`mqproto replay`, which plays a captured conversation to a live queue manager.

`captures/script.py` reads one side's part. rewrite.py changes fields that must differ, identity.py chooses our GUID,
and receiver.py processes the peer's messages. performance.py combines these while a part is played, without a socket.
talk.py is one connection, stage.py opens and accepts connections, and verbatim.py plays unchanged bytes instead.
report.py compares the answers, and command.py has the command.
"""
