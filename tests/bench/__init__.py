"""Benchmarks: run all with `make bench`, or one by its name: `python -m tests.bench chain`.

Read `chain.py` first, then `load/row.py`. Things to be compared are measured in turns (`figures.in_turns`). Each
message is checked; if one is wrong, there are no figures.
"""
