"""`mqproto fuzz strangers`: three nodes under honest load, and their attackers.

Read plan.py first: the attacks and their forms. round.py carries one out and measures, chain.py has the nodes and the
honest load, attackers.py the process that attacks with the tactics of simulator/fuzz/tactics, verdict.py the promises
that must hold, and suite.py runs it all.
"""
