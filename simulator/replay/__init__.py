"""`mqproto replay`: plays a captured conversation to a live queue manager.

`captures/script.py` reads one side's part. rewrite.py changes fields that must differ, identity.py chooses our GUID,
receiver.py takes the peer's messages; performance.py joins them while a part is played, without a socket. talk.py is
one connection, stage.py opens and accepts them, verbatim.py plays bytes instead. report.py compares, and command.py has
the command.
"""
