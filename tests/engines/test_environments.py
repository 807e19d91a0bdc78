"""Environments of other tools are whole or absent, and failures in them are one line."""

import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from assay.engines import environments
from assay.engines.environments import (
    ENVIRONMENTS,
    ToolEnvironment,
    ask,
    ending,
    folder_of,
    python_of,
)
from assay.errors import RunFailure

ECHO = """import json, sys
asked = json.load(sys.stdin)
if not asked:
    raise ValueError('no such template')
print('noise')
print(json.dumps([asked, sys.prefix, 'torch' in sys.modules]))
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An environment without a package that a registry would have to give."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setitem(ENVIRONMENTS, "bare", ToolEnvironment(("pip", "pip")))
    return "bare"


def test_an_environment_is_made_once_over_what_a_kill_left_and_apart_from_assays(
    bare: str, tmp_path: Path
) -> None:
    (folder_of(bare) / "bin").mkdir(parents=True)
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    answer, prefix, torch = ask(bare, script, {"a": "é"})
    assert answer == {"a": "é"} and Path(prefix) == folder_of(bare) and not torch
    made = folder_of(bare).stat().st_ctime_ns
    assert python_of(bare).is_file() and folder_of(bare).stat().st_ctime_ns == made
    with pytest.raises(RunFailure, match=r"echo.py failed .* ValueError: no such template$"):
        ask(bare, script, {})
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(RunFailure, match=r"echo.py took more than 0.2 seconds"):
        ask(bare, script, {}, timeout=0.2)


def test_a_package_that_cannot_be_had_leaves_nothing_that_counts(
    bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = "import sys; sys.exit('a\\nno such package' if 'install' in sys.argv else 0)"

    def pip_fails(command: list[str], words: IO[bytes]) -> AbstractContextManager[Any]:
        return ending([sys.executable, "-c", pip, *command], words)

    monkeypatch.setattr(environments, "ending", pip_fails)
    with pytest.raises(RunFailure, match="environment bare cannot be installed: no such package"):
        python_of(bare)
    assert not (folder_of(bare) / "installed.json").exists()


INSTALLS = """
import sys
from assay.engines.environments import _command
_command(["sh", "-c", "sleep 600 & echo $! > $0; wait", sys.argv[1]], "bare")
"""


def test_a_killed_installation_leaves_no_process(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    installing = subprocess.Popen([sys.executable, "-c", INSTALLS, str(file)])
    while not (file.exists() and file.read_text().strip()):
        time.sleep(0.02)
    child = psutil.Process(int(file.read_text()))
    pip = child.parent()
    assert pip is not None and pip.pid != installing.pid
    installing.kill()
    installing.wait()
    _, alive = psutil.wait_procs([pip, child], timeout=30)
    assert not alive


def test_a_package_is_found_under_the_name_that_it_gave_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ms-swift calls itself ms_swift."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setitem(ENVIRONMENTS, "named", ToolEnvironment((environments.TORCH, "a-b==1.0")))
    folder = folder_of("named")
    site = folder / "lib" / "python3" / "site-packages"
    for name, version in (("a_b", "1.0"), ("torch", "2.13.0")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").touch()
    (folder / "installed.json").write_text("[]")
    (found,) = [each for each in environments.survey() if each.name == "named"]
    assert (found.version, found.problem) == ("1.0", "")
