"""Real nodes, gateways and triggers under load, broken on purpose; accepted messages must arrive.

rig.py has the parts of all runs, verdict.py says which oracles judge which run. load/ has senders and receivers,
supervisor.py starts processes, links.py has breakable links between them, strikes.py plans the faults, observer.py
measures the nodes, and proof.py compares. demo.py cuts a cable and kills a node, crash.py kills nodes for a given
time, validation/ has HTTP at both ends, and fuzz/hostile has strangers attack.
"""
