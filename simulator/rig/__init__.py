"""Real nodes, gateways and triggers under load, broken on purpose; accepted messages must arrive.

supervisor.py and programs.py start processes, links.py has the links between them that break, load/ is who sends and
receives, strikes.py what breaks when, and proof.py checks the promises. demo.py cuts a cable and kills a node, crash.py
kills nodes for a given time, validation/ does it with HTTP at both ends.
"""
