"""Hostile packets for parsers and peers, made from the layouts; each finding is a file that repeats it.

Begin with mutations.py. roles.py asks the layouts what each field is for; findings.py keeps what was found.
"""
