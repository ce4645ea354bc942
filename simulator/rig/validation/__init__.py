"""The edges as programs: gateways and triggers next to nodes, run as commands, watched, and broken on purpose.

edgerig.py runs them, and ledger.py compares all records of the messages. demo.py kills all of them while messages
cross, and report.py has its results. validate.py makes a consumer fail on cue, as the scenarios of scenario.py require.
"""
