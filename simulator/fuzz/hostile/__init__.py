"""`mqproto fuzz strangers`: three nodes under honest load, and those who attack them.

Read plan.py first: which attacks there are, and in which forms. round.py carries one out and measures, chain.py has the
nodes and the honest load, attackers.py the process that attacks, by the tactics of simulator/fuzz/peer, verdict.py what
has to hold, and suite.py runs it all.
"""
