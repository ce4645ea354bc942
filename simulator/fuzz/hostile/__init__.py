"""`mqproto fuzz strangers`: three nodes under honest load, and their attackers.

Read plan.py first, which has the attacks and their forms. round.py carries out one attack and measures its effects.
chain.py has the nodes and the honest load, attackers.py has the process that attacks with the tactics of
simulator/fuzz/tactics, and verdict.py has the promises that must hold. suite.py runs everything.
"""
