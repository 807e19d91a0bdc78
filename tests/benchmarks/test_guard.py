"""Two commits are measured on their own files."""

import json
from pathlib import Path

import pytest
from benchmarks.shapes import GrpoCell

from benchmarks import guard

CELL = GrpoCell("qwen3", 32, 8)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of one commit, whose worker differs from the one that lies there."""
    root = tmp_path / "repository"
    for name in ("src/assay/__init__.py", "benchmarks/__init__.py", "benchmarks/assay_worker.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("# committed\n")
    monkeypatch.setattr(guard, "ROOT", root)
    monkeypatch.setattr(guard, "model_folder", Path)
    guard.git("init", "--quiet")
    guard.git("add", ".")
    guard.git("-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-qm", "first")
    (root / "benchmarks/assay_worker.py").write_text("# changed\n")
    return root


def test_each_side_finds_the_modules_of_its_own_commit_first(
    repository: Path, tmp_path: Path
) -> None:
    old = guard.side_of("old", "HEAD", CELL, tmp_path)
    new = guard.side_of("new", guard.HERE, CELL, tmp_path)
    workers = [side.paths[1] / "benchmarks/assay_worker.py" for side in (old, new)]
    assert [worker.read_text() for worker in workers] == ["# committed\n", "# changed\n"]
    assert old.paths[0] == old.paths[1] / "src" != new.paths[0]
    assert (old.module, old.settings) == (new.module, new.settings)
    assert json.loads(json.dumps(old.settings))["cell"]["prompts"] == CELL.prompts
    assert guard.commit_of(guard.HERE).endswith("-dirty") and guard.commit_of("HEAD") == "HEAD"
