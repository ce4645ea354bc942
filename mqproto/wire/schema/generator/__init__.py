"""Turns layouts into Python source, wire/generated.py, which reads and writes as fast as `struct`.

The source is made by walking the construct tree. Runs of fields of fixed size, even across nested headers, become one
`struct.Struct`. `this` expressions become local variables, conditions become `if`, and rules about the bits of one word
become one comparison. Records are made without their `__init__`, which only sets the fields. Anything that the walk
does not know raises `NotImplementedError`, so it cannot lead to wrong bytes.

The generated code only accepts or refuses. It raises one of `REFUSALS` for bytes or records that the layout refuses,
and wire/codec.py lets the reference codec word the error. `make codec` runs this package; mqproto itself never does.
"""
