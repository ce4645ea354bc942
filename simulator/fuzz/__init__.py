"""Hostile packets for parsers and peers, made from the layouts.

A finding is kept in a file from which it can be repeated.

Begin with README.md, and then mutations.py, which makes the packets; roles.py finds out from the layouts what purpose
each field has. In parser/, parser.py is the loop of `mqproto fuzz parser`; judges.py, codec.py and program.py judge the
targets. tactics/ has whole conversations, and peer/ holds them with a live peer. findings.py keeps the findings, and
minimise.py makes them small.
"""
