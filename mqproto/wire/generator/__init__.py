"""Turns a layout into Python source that reads or writes it at the speed of `struct`.

The source is made at import by walking the construct tree. Runs of fields of fixed size, across nested
headers too, become one `struct.Struct`; `this` expressions become local variables; conditions become `if`; rules about
the bits of one word become one comparison. Records are made without their `__init__`, which does nothing else.
Whatever the walk does not know raises `NotImplementedError` at import, so it cannot go wrong on the wire.

What is generated says yes or no only: it raises anything in `REFUSALS` for bytes or records that the layout
refuses, and wire/codec.py lets the reference codec find the words.
"""

from mqproto.wire.generator.functions import checker, finder, items_checker, reader
from mqproto.wire.generator.source import REFUSALS, Refused
from mqproto.wire.generator.writing import builder

__all__ = ["REFUSALS", "Refused", "builder", "checker", "finder", "items_checker", "reader"]
