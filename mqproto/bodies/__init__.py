"""Reads and writes message bodies: .NET's message formatters, COM's types, and the headers of service buses.

`read_body` decodes a body, and `write_body` makes one. `to_json` and `from_json` convert values to JSON and back.
"""

from mqproto.bodies.body import BINARY, BYTES, Body, describe, read_body, write_body
from mqproto.bodies.headers import MASSTRANSIT, NSERVICEBUS, REBUS, Headers, read_headers, write_headers
from mqproto.bodies.typed import body_of_text
from mqproto.bodies.values import (
    Above,
    DateTime,
    Mention,
    TimeSpan,
    Tree,
    UnexplainedError,
    Value,
    from_json,
    to_json,
)

__all__ = [
    "BINARY",
    "BYTES",
    "MASSTRANSIT",
    "NSERVICEBUS",
    "REBUS",
    "Above",
    "Body",
    "DateTime",
    "Headers",
    "Mention",
    "TimeSpan",
    "Tree",
    "UnexplainedError",
    "Value",
    "body_of_text",
    "describe",
    "from_json",
    "read_body",
    "read_headers",
    "to_json",
    "write_body",
    "write_headers",
]
