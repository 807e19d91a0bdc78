"""Engines that are installed apart: what is listed, added, asked for and refused."""

from pathlib import Path

import pytest

from assay.engines import environments
from assay.engines.environments import ENVIRONMENTS, ToolEnvironment, folder_of
from tests.cli.conftest import answer, call


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a machine without a GPU."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("assay.engines.environments.shutil.which", lambda name: None)
    return tmp_path


def problems() -> dict[str, str]:
    listed = answer(call("engines", "--json"))["result"]["engines"]
    return {engine["name"]: engine["problem"] for engine in listed}


def test_engines_are_listed_with_what_does_not_fit(cache: Path, monkeypatch) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "bare", ToolEnvironment(("a-pip==0.0.1",)))
    assert {*problems().values()} == {"not installed"}
    folder = folder_of("bare")
    package = folder / "lib" / "python3.11" / "site-packages" / "a_pip-0.0.2.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: a_pip\nVersion: 0.0.2\n")
    (folder / "installed.json").write_text("[]")
    assert problems()["bare"] == "the Python it was made with is gone"
    (folder / "bin").mkdir()
    (folder / "bin" / "python").touch()
    assert problems()["bare"] == "0.0.2 instead of 0.0.1"
    folder.rename(folder.with_name("bare-00000000"))
    assert "but with other pins in" in problems()["bare"]


def test_adding_makes_an_environment_once(cache: Path, monkeypatch) -> None:
    asked = []

    def run(command: list[str], name: str) -> None:
        asked.append(command)
        folder_of(name).mkdir(parents=True, exist_ok=True)

    monkeypatch.setitem(ENVIRONMENTS, "bare", ToolEnvironment(("pip", "pip")))
    monkeypatch.setattr(environments, "_command", run)
    assert call("engines", "add", "bare").exit_code == 0 and len(asked) == 2
    for arguments, said in ((("add", "vlm"), "did you mean 'vllm'"), (("add",), "which one?")):
        result = call("engines", *arguments)
        assert result.exit_code == 2 and said in result.stderr
