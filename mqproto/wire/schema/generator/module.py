"""Assembles the module wire/generated.py from functions and the code that they need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqproto.wire.schema.generator.source import Function

HEAD: Final = '''"""Reads, judges and writes packets, acknowledgments and key blobs.

Generated from the layouts: change those, and then `make codec`. A test holds the two equal.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from codecs import utf_16_le_decode, utf_16_le_encode
from struct import Struct
from typing import Any, Final
'''
NAMES: Final = """
decode: Any = utf_16_le_decode
encode: Any = utf_16_le_encode
new: Any = object.__new__
ZEROS: Final = (b"", b"\\0", b"\\0\\0", b"\\0\\0\\0")
"""


def module(functions: Iterable[Function]) -> str:
    """Return the source, still unformatted, of a module with these functions and those that they call."""
    each = {one.name: one for function in functions for one in function.each()}
    imports = {"mqproto.wire.schema.refused": {"Refused"}, "mqproto.wire.schema.stream": {"NUL", "nul_at"}}
    constants: dict[str, str] = {}
    for one in each.values():
        constants |= one.constants
        for kind in one.kinds:
            imports.setdefault(kind.__module__, set()).add(kind.__name__)
    return "\n".join(
        [
            HEAD,
            *(f"from {where} import {', '.join(sorted(names))}" for where, names in sorted(imports.items())),
            NAMES,
            *(f"{name}: Final = {value}" for name, value in sorted(constants.items())),
            *(f"\n\n{one.source.rstrip()}" for one in each.values()),
            "",
        ]
    )
