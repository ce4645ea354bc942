"""What pyproject.toml cannot say: with MQPROTO_COMPILE=1 the hot modules become extension modules, by mypyc.

    MQPROTO_COMPILE=1 pip install .        or `make fast`

Their source is the same, and it comes along, as tracebacks show it. Without the variable nothing is compiled, and
the wheel serves every machine. It is a variable of the build's, as mypy's and black's are, since an extra cannot choose
between two wheels of one name.

An extension module is found before the source beside it, whatever was changed in that since. So none is ever built
into a checkout.
"""

from __future__ import annotations

import os
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from setuptools import setup
from setuptools.command.build_ext import build_ext

VARIABLE: Final = "MQPROTO_COMPILE"
WORDS: Final = {"": False, "0": False, "1": True}
COMPILER: Final = ["mypy[mypyc]>=2.4", "construct>=2.10.70", "construct-typing>=0.6"]
"""What it takes to compile; pip brings it where it builds in an environment of its own."""
STAGED: Final = Path("build", "staged")
"""The copy of the source that is compiled, with what is made of it."""
INTO_THE_CHECKOUT: Final = {"editable_wheel", "develop", "--inplace", "-i"}
ONLY_ASKED: Final = {"dist_info", "egg_info"}
"""Steps in which pip asks what is needed, and what the wheel will be called."""


def is_wanted() -> bool:
    """Whether modules are to be compiled."""
    word = os.environ.get(VARIABLE, "")
    if word not in WORDS:
        sys.exit(f"{VARIABLE} is {word!r}: 1 has the hot modules compiled, 0 or nothing has none")
    return WORDS[word]


def compiled() -> list[Any]:
    """The extension modules.

    They are one library, so that they call each other as C does. It is made of several files, as one would have the
    compiler take more than a GiB.
    """
    from mypyc.build import mypycify

    # The folder that this file is in is not looked into where pip builds in an environment of its own.
    sys.path.insert(0, str(Path(__file__).parent))
    from mqproto.wire.generator.staging.tree import stage

    modules = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["tool"]["mqproto"]["compiled"]
    options = [f"--config-file={STAGED / 'mypy.ini'}", "--ignore-missing-imports"]
    staged = stage(modules, Path(), STAGED)
    return mypycify(
        [*options, *staged], group_name="mqproto", multi_file=True, opt_level="2", debug_level="0"
    )


class BuildAtOnce(build_ext):
    """Compiles as many files at a time as there are processors: setuptools does so with libraries, and we have one."""

    def build_extensions(self) -> None:
        compiler: Any = self.compiler

        def compile_all(sources: list[str], output_dir: str | None = None, **given: Any) -> list[str]:
            preargs, debug = given.get("extra_preargs"), given.get("debug", 0)
            _, objects, extra, options, build = compiler._setup_compile(
                output_dir,
                given.get("macros"),
                given.get("include_dirs"),
                sources,
                given.get("depends"),
                given.get("extra_postargs"),
            )
            arguments = compiler._get_cc_args(options, debug, preargs)

            def compile_one(name: str) -> None:
                compiler._compile(name, *build[name], arguments, extra, options)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(compile_one, build))
            return list(objects)

        compiler.compile = compile_all
        super().build_extensions()


if not is_wanted():
    setup()
elif INTO_THE_CHECKOUT.intersection(sys.argv):
    sys.exit(f"with {VARIABLE}=1 a compiled module would hide its source here: leave it out, or --editable")
elif ONLY_ASKED.intersection(sys.argv):
    setup(setup_requires=COMPILER)
elif find_spec("mypyc") is None:
    sys.exit(f"{VARIABLE}=1 needs the compiler: pip install {' '.join(map(repr, COMPILER))}")
else:
    setup(ext_modules=compiled(), cmdclass={"build_ext": BuildAtOnce})
