"""Hypothesis strategies for every record, packet and session, for fuzzing your own parser.

    from hypothesis import given
    from mqproto.testing import nearly_valid_packets

    @given(nearly_valid_packets())
    def test_my_parser_survives(data: bytes) -> None: ...

They need `pip install 'mqproto[strategies]'`; nothing else in mqproto imports this package.
"""

from mqproto.testing.conversations import Turn, conversations, nearly_valid_conversations
from mqproto.testing.headers import (
    base_headers,
    debug_headers,
    direct_names,
    guids,
    message_properties_headers,
    multi_queue_format_headers,
    padding,
    private_queue_format_names,
    queue_managers,
    security_headers,
    session_headers,
    sids,
    soap_headers,
    texts,
    transaction_headers,
    tx_sequence_ids,
    user_headers,
)
from mqproto.testing.keyblobs import public_key_blobs, simple_blobs
from mqproto.testing.packets import (
    chunked,
    connection_parameters_packets,
    establish_connection_packets,
    final_acks,
    mutated,
    nearly_valid_packets,
    order_acks,
    packets,
    pings,
    session_acks,
    user_messages,
)

__all__ = [
    "Turn",
    "base_headers",
    "chunked",
    "connection_parameters_packets",
    "conversations",
    "debug_headers",
    "direct_names",
    "establish_connection_packets",
    "final_acks",
    "guids",
    "message_properties_headers",
    "multi_queue_format_headers",
    "mutated",
    "nearly_valid_conversations",
    "nearly_valid_packets",
    "order_acks",
    "packets",
    "padding",
    "pings",
    "private_queue_format_names",
    "public_key_blobs",
    "queue_managers",
    "security_headers",
    "session_acks",
    "session_headers",
    "sids",
    "simple_blobs",
    "soap_headers",
    "texts",
    "transaction_headers",
    "tx_sequence_ids",
    "user_headers",
    "user_messages",
]
