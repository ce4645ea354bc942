"""Real nodes, gateways and triggers under load, broken on purpose; accepted messages must arrive.

rig.py has what all runs have in common, verdict.py says which oracles judge which run. load/ is who sends and receives,
supervisor.py starts processes, links.py has the links between them that break, strikes.py what breaks when, observer.py
what nodes do and take, and proof.py compares. demo.py cuts a cable and kills a node, crash.py kills nodes for a given
time, validation/ does it with HTTP at both ends, and fuzz/hostile has strangers attack.
"""
