"""One session between two neighbours: handshake, windows and session acknowledgments.  [MS-MQQB] 3.1.1.3.1"""

from mqproto.session.states import ConnectionStatus, Data, InFlight, Remote, Session, SessionState

__all__ = ["ConnectionStatus", "Data", "InFlight", "Remote", "Session", "SessionState"]
