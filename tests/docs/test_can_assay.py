"""The page "Can Assay ...?" tells the truth, and its runs in other tools' words are accepted."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from assay.experiment.experiment import Experiment
from assay.lab.check.all_checks import check_experiment
from tests.docs.pages import BLOCK, DOCS, blocks
from tests.models.folders import save_tiny_model

PAGE = "can-assay.md"
ROW = re.compile(r"^\| (.+?) \| (yes|no|untested) \| (.+) \|$", re.MULTILINE)
TEXT = BLOCK.sub("", (DOCS / PAGE).read_text(encoding="utf-8"))
ANSWERS = {question: (answer, reason) for question, answer, reason in ROW.findall(TEXT)}


def test_every_row_of_the_page_has_one_of_three_answers_and_its_key_or_reason():
    rows = [line for line in TEXT.splitlines() if re.match(r"^\| (?!---|can Assay)", line)]
    assert len(rows) == len(ANSWERS) > 25
    assert all(reason.strip() for _, reason in ANSWERS.values())


KEYS = re.compile(r"`(\w+) = ")


def test_every_key_that_the_page_names_is_a_key_of_the_experiment_file():
    reference = (DOCS / "experiment.md").read_text(encoding="utf-8")
    named = {key for _, reason in ANSWERS.values() for key in KEYS.findall(reason)}
    assert len(named) > 5
    assert {key for key in named if f"- `{key}` (" not in reference} == set()


FUNCTION = """
def exact(prompts, completions, solution, **kwargs):
    answers = (completion[0]["content"].strip() for completion in completions)
    return [float(answer == right) for answer, right in zip(answers, solution)]
"""


def trl_rows(folder: Path) -> None:
    """Prompts as messages, with TRL's own column of the right answer."""
    rows = [
        {"prompt": [{"role": "user", "content": f"{n} + 1"}], "solution": str(n + 1)}
        for n in range(40)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "exact.py").write_text(FUNCTION)


RUNS = {"from-trl": trl_rows}


@pytest.mark.parametrize("name", RUNS)
def test_the_file_beside_another_tools_command_is_accepted(name, tmp_path):
    texts = {tomllib.loads(text)["name"]: text for text in blocks(PAGE, "toml")}
    assert texts.keys() == RUNS.keys()
    RUNS[name](tmp_path)
    save_tiny_model(tmp_path / "model")
    file = tmp_path / f"{name}.toml"
    file.write_text(texts[name].replace("hf:Qwen/Qwen3-0.6B", "path:model"))
    found = check_experiment(file, root=tmp_path)
    assert found.errors == ()
    assert Experiment.model_validate(tomllib.loads(file.read_text())).name == name
