"""The example of library.md runs as it stands, and in the cells of a notebook."""

from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.tiny_labs import make_lab

SHORT = {'"base", "sft.best", "rl.last"': '"base", "sft.last"', "checkpoint_every = 8\n": ""}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A lab whose experiment has one stage, and no evaluation but the report."""
    file = make_lab(tmp_path, until="[evaluate.sampled]", edits=SHORT)
    text = file.read_text()
    rest = text[text.index("[stage.rl]") : text.index("[evaluate.test]")]
    file.write_text(text.replace(rest, ""))
    return tmp_path


def test_the_example_runs_as_it_stands(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (_, code) = blocks("library.md", "python")
    monkeypatch.delenv("ASSAY_LAB", raising=False)
    monkeypatch.chdir(lab)
    exec(code, {"__name__": "__main__"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("{'error': 0")
    assert [line for line in lines if line.startswith("step ")][3].startswith("step 4: ")
    assert any(line.startswith("sft.step-000004 ") for line in lines)
    assert "comparisons" in lines[-1] and "undecided" in lines[-1]
