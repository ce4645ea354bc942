"""Turns layouts into Python source that reads and writes packets at the speed of `struct`: wire/generated.py.

The source is made by walking the construct tree. Runs of fields of fixed size, even across nested headers, become one
`struct.Struct`; `this` expressions become local variables; conditions become `if`; rules about the bits of one word
become one comparison. Records are made without their `__init__`, which only sets the fields. Anything that the walk
does not know raises `NotImplementedError`, so it cannot go wrong on the wire.

The generated code only accepts or refuses: it raises an exception of `REFUSALS` for bytes or records that the layout
refuses, and wire/codec.py lets the reference codec word the error. `make codec` runs this; mqproto itself never does.
"""
