"""Helpers for tests of other people's software, and of ours: `pip install 'mqproto[testing]'`.

plugin.py has the pytest fixture `queue_managers`, managers.py has the queue managers that it starts, and topologies.py
has Hypothesis strategies for topologies. The strategies for packets and sessions are in `mqproto.testing`. Nothing else
in simulator imports this.
"""
