"""The example of library.md runs as it stands, and in the cells of a notebook."""

from pathlib import Path
from typing import Any

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
    (code, *_) = blocks("library.md", "python")
    monkeypatch.delenv("ASSAY_LAB", raising=False)
    monkeypatch.chdir(lab)
    exec(code, {"__name__": "__main__"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("{'error': 0")
    assert [line for line in lines if line.startswith("step ")][3].startswith("step 4: ")
    assert any(line.startswith("sft.step-000004 ") for line in lines)
    assert "comparisons" in lines[-1] and "undecided" in lines[-1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_notebook_shows_runs_and_comparisons(lab: Path, monkeypatch: pytest.MonkeyPatch):
    """Executed by Jupyter's own client, in a kernel of its own."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.delenv("ASSAY_LAB", raising=False)
    (code, *_) = blocks("library.md", "python")
    refused = (
        "try:\n    assay.run('tiny.toml')\nexcept assay.InputError as error:\n    print(error)"
    )
    sources = [code, "run", "both", refused]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=250, kernel_name="python3").execute(cwd=str(lab))
    first, shown, compared, told = (cell.outputs for cell in notebook.cells)
    assert "sft 4/4" in "".join(text_of(first, "stderr"))

    def html(outputs: list[Any]) -> str:
        (found,) = [o["data"]["text/html"] for o in outputs if "data" in o]
        return found

    assert "<table>" in html(shown) and "sft" in html(shown)
    assert "undecided" in html(compared)
    assert "a run named 'tiny' exists" in "".join(text_of(told, "stdout"))


def text_of(outputs: list[Any], stream: str) -> list[str]:
    """What a cell wrote to a stream."""
    return [each["text"] for each in outputs if each.get("name") == stream]
