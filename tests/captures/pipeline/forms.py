"""What saved objects look like, to see that they have changed."""

from __future__ import annotations


def attributes(thing: object) -> set[str]:
    """What an object has, or what all objects of a class have, with the name of the class."""
    kind = thing if isinstance(thing, type) else type(thing)
    names = {name for each in kind.__mro__ for name in getattr(each, "__slots__", ())}
    names.update(getattr(kind, "_fields", ()), () if kind is thing else getattr(thing, "__dict__", ()))
    return {f"{kind.__qualname__}.{name}" for name in names}
