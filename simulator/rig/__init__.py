"""Real nodes, gateways and triggers under load, which are broken on purpose. Accepted messages must still arrive.

rig.py has the parts of all runs, and verdict.py says which oracles judge which run. load/ has senders and receivers,
supervisor.py starts processes, links.py has breakable links between them, strikes.py plans the faults, observer.py
measures the nodes, and proof.py compares messages. demo.py cuts a link and kills a node, crash.py kills nodes for a
given time, validation/ has HTTP at both ends, and fuzz/hostile makes strangers attack.
"""
