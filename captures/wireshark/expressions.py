"""Translates the `this` expressions of layouts into Lua.

Wireshark's Lua is 5.2 or 5.4. Lua 5.2 lacks bit operators, and only 5.4 has integers, so bits are extracted by
division, which is exact for 32-bit words in both. Truth values are numbers in Python but not in Lua, so an expression
is translated either as a number or as a condition.
"""

from __future__ import annotations

from typing import Any, Final

from mqproto.wire.schema.generator.source import BinExpr, FuncPath, Path, is_path, opnames, steps_of

COMPARISONS: Final = {"==": "==", "!=": "~=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
ARITHMETIC: Final = ("+", "-", "*")
KEYWORDS: Final = frozenset(
    {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local"}
    | {"nil", "not", "or", "repeat", "return", "then", "true", "until", "while"}
)


def number(expression: Any) -> str:
    """Return an expression as a Lua number.

    It may call `shift`, `keep` and `length`, which are functions of reading.lua.

    Raises:
        NotImplementedError: the expression has an operator, a mask or a field that Lua cannot express.
    """
    match expression:
        case bool():
            pass
        case int():
            return str(expression)
        case Path():
            steps = steps_of(expression)
            return ".".join(["this", *(step if step == "_" else checked(step) for step in steps)])
        case FuncPath(_FuncPath__func=function, _FuncPath__operand=field) if function is len and is_path(
            field
        ):
            [name] = steps_of(field)
            return f'length(this, "{checked(name)}")'
        case BinExpr():
            left, right = expression.lhs, expression.rhs
            symbol = opnames[expression.op]
            if symbol in ARITHMETIC:
                return f"({number(left)} {symbol} {number(right)})"
            if symbol == ">>":
                return f"shift({number(left)}, {number(right)})"
            if symbol == "&" and isinstance(right, int):
                first, width = bit_places(right)
                return f"keep({number(left)}, {first}, {width})"
    raise NotImplementedError(f"{expression!r} as a number in Lua")


def truth(expression: Any) -> str:
    """Return an expression as a Lua condition that is true if the expression is not zero, as in Python.

    Raises:
        NotImplementedError: as for `number`; or an operand of `&` is wider than one bit.
    """
    if isinstance(expression, BinExpr):
        left, right = expression.lhs, expression.rhs
        symbol = opnames[expression.op]
        if symbol in COMPARISONS:
            return f"({number(left)} {COMPARISONS[symbol]} {number(right)})"
        if symbol == "|":
            return f"({truth(left)} or {truth(right)})"
        if symbol == "&" and (is_comparison(left) or is_comparison(right)):
            if not (is_one_bit(left) and is_one_bit(right)):
                raise NotImplementedError(f"{expression!r}: `&` of a comparison and a number in Lua")
            return f"({truth(left)} and {truth(right)})"
    return f"({number(expression)} ~= 0)"


def is_comparison(expression: Any) -> bool:
    """Whether an expression's value is a truth value in Python."""
    return isinstance(expression, BinExpr) and opnames[expression.op] in COMPARISONS


def is_one_bit(expression: Any) -> bool:
    """Whether an expression is always 0 or 1, so that `&` means the same as `and`."""
    if is_comparison(expression):
        return True
    if not isinstance(expression, BinExpr) or opnames[expression.op] != "&":
        return False
    return isinstance(expression.rhs, int) and expression.rhs == 1


def bit_places(mask: int) -> tuple[int, int]:
    """Return the position of the lowest bit of a mask, and the number of its bits.

    Raises:
        NotImplementedError: the bits are not adjacent.
    """
    first = (mask & -mask).bit_length() - 1
    if mask <= 0 or mask >> first & (mask >> first) + 1:
        raise NotImplementedError(f"the mask {mask:#x} has gaps, which division cannot make")
    return first, (mask >> first).bit_length()


def checked(name: str) -> str:
    """Return a field's name after checking that Lua accepts it.

    Raises:
        NotImplementedError: the name is a Lua keyword, is not an ASCII identifier, or begins like the private names of
            reading.lua.
    """
    if name in KEYWORDS or name.startswith("_") or not (name.isascii() and name.isidentifier()):
        raise NotImplementedError(f"a field called {name!r} in Lua")
    return name


def quoted(text: str) -> str:
    """Return a text as a Lua string in ASCII; other characters become escaped UTF-8 bytes."""
    return '"' + "".join(map(_spelt, text.encode())) + '"'


def quoted_bytes(data: bytes) -> str:
    """Return some bytes as a Lua string."""
    return '"' + "".join(map(_spelt, data)) + '"'


def _spelt(byte: int) -> str:
    if byte in b'\\"':
        return "\\" + chr(byte)
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03}"
