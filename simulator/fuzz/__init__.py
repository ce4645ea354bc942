"""Hostile packets for parsers and peers, made from the layouts; each finding is a file that repeats it.

Begin with README.md, and then mutations.py, which makes the packets; roles.py finds out from the layouts what each
field is for. In parser/, parser.py is the loop of `mqproto fuzz parser`; judges.py, codec.py and program.py judge the
targets. tactics/ has whole conversations, and peer/ holds them with a live peer. findings.py keeps the findings, and
minimise.py makes them small.
"""
