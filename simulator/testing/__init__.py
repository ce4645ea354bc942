"""Helpers for tests of other software and of our own. `pip install 'mqproto[testing]'` installs them.

plugin.py has the pytest fixture `queue_managers`, managers.py has the queue managers that it starts, and topologies.py
has Hypothesis strategies for topologies. The strategies for packets and sessions are in `mqproto.testing`. Nothing else
in the simulator imports this package.
"""
