"""Helpers for tests of other people's software, and of ours: `pip install 'mqproto[testing]'`.

plugin.py has the pytest fixture `queue_managers`, managers.py the queue managers that it starts, and topologies.py
Hypothesis strategies for topologies. Those for packets and sessions are in `mqproto.testing`. Nothing else in
simulator imports this.
"""
