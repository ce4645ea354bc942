"""Benchmarks: run all with `make bench`, or one by its name: `python -m tests.bench chain`.

Read `chain.py` first, then `load/row.py`. Things that are compared are measured alternately (`figures.in_turns`). Each
message is checked; if one is wrong, there are no figures.
"""
