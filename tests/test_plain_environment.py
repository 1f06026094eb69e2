"""What the environment of whoever starts the tests names for etcli reaches no test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from plain_environment import named_by_users

SUPPORT = Path(__file__).parent / "support"
SEEN = """
import os

def test_seen():
    seen = {name for name in os.environ if os.environ[name] == "/the/users"}
    assert seen == {"ETCLI_CACHE_DIR"}
"""


def test_settings_and_tools_of_the_user_are_out_of_sight(tmp_path: Path) -> None:
    names = named_by_users()
    assert {"ANDROID_NDK_HOME", "ANDROID_HOME", "EXECUTORCH_ROOT", "FLATC_EXECUTABLE", "MEDIATEK_SDK_ROOT"} < names
    names |= {"ETCLI_RECIPE", "ETCLI_WORKSPACE", "HF_HOME", "HF_TOKEN", "ETCLI_CACHE_DIR"}
    (tmp_path / "test_seen.py").write_text(SEEN)
    words = [
        "-q",
        "-p",
        "plain_environment",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        "-c",
        os.devnull,
        str(tmp_path),
    ]
    env = {**os.environ, **dict.fromkeys(names, "/the/users"), "PYTHONPATH": str(SUPPORT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, env=env, timeout=120
    )
    assert done.returncode == 0, done.stdout
