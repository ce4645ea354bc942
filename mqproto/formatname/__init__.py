"""How MSMQ names queues: format names, path names, and their form in packets.  [MS-MQMQ] 2.1

path.py has the names that people write, and names.py has the names used in the protocol. text.py reads both kinds, and
wire.py converts them to and from the fields in the headers of packets.
"""

from mqproto.formatname.names import (
    ConnectorName,
    DirectName,
    DistributionListName,
    FormatName,
    MachineName,
    MulticastName,
    MultipleElementName,
    PrivateName,
    Protocol,
    PublicName,
    SingleName,
    direct_name,
)
from mqproto.formatname.path import PathName, Scope, SystemQueue, parse_path_name
from mqproto.formatname.text import parse_format_name, parse_queue_name

__all__ = [
    "ConnectorName",
    "DirectName",
    "DistributionListName",
    "FormatName",
    "MachineName",
    "MulticastName",
    "MultipleElementName",
    "PathName",
    "PrivateName",
    "Protocol",
    "PublicName",
    "Scope",
    "SingleName",
    "SystemQueue",
    "direct_name",
    "parse_format_name",
    "parse_path_name",
    "parse_queue_name",
]
