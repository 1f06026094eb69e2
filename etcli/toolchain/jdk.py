"""The headers of a JDK on this machine, with which the binding to Java is compiled for Linux. Android's NDK has its own."""

from __future__ import annotations

import os
from pathlib import Path

from etcli.toolchain.programs import on_path

APT = "default-jdk-headless"
"""The Debian and Ubuntu package that brings one."""


def jni_headers() -> tuple[Path, ...] | None:
    """The folders of `jni.h` and `jni_md.h`: of `JAVA_HOME`, else of the `javac` on PATH. None where neither has them."""
    named = os.environ.get("JAVA_HOME")
    homes = [Path(named)] if named else []
    if (javac := on_path("javac")) is not None:
        homes.append(javac.resolve().parent.parent)
    for home in homes:
        folders = (home.absolute() / "include", home.absolute() / "include" / "linux")
        if (folders[0] / "jni.h").is_file() and (folders[1] / "jni_md.h").is_file():
            return folders
    return None
