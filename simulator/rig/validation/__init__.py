"""The edges as programs: gateways and triggers beside nodes, run from the command line, watched, and broken on purpose.

edgerig.py runs them, ledger.py compares what was seen of messages. demo.py kills all of them while messages cross, and
report.py says what it has shown. validate.py has a consumer fail on cue, as the scenarios of scenario.py say.
"""
