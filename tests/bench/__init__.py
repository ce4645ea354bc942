"""How fast it is here: `make bench`, or one measurement, as `python -m tests.bench chain`.

Read `chain.py` first, then `load/row.py`. What is compared is measured in turns (`figures.in_turns`). Each message is
checked, and without that there are no figures.
"""
