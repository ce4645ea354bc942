"""Hostile packets for parsers and peers, made from the layouts; each finding is a file that repeats it.

Begin with README.md, then mutations.py, which makes the packets; roles.py asks the layouts what each field is for.
In parser/, parser.py is the loop of `mqproto fuzz parser`; judges.py, codec.py and program.py say what is wrong of
whom. tactics/ has whole conversations, peer/ has them with a live peer. findings.py and minimise.py keep what was
found, and make it small.
"""
