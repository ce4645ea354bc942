"""For tests of other people's software, and of ours: `pip install 'mqproto[testing]'`.

plugin.py is pytest's: the fixture `queue_managers`. managers.py has what that gives, topologies.py hypothesis
strategies for topologies. Those for packets and sessions are in `mqproto.testing`. Nothing else in simulator imports
this.
"""
