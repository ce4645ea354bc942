"""The edges as programs: gateways and triggers beside nodes, run from the command line, watched, and broken on purpose.

command.py is what may be typed, programs.py the processes. demo.py kills all of them while messages cross, producer.py
and validator.py stand at its ends, report.py says what it has shown. validate.py has a consumer fail on cue, as the
scenarios of validation.py say.
"""
