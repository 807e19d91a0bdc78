"""An exported folder has the stage's rows in its order and its own reward, or there is none."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, GenerationConfig

from assay.data.episode import Completion
from assay.data.json_files import read_jsonl
from assay.data.splits import visits
from assay.experiment.stage_tables import GrpoStage
from assay.lab.models.language_learner import LanguageLearner
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.lab.session.validate import read_whole
from assay.runs.run_directory import RunDirectory
from assay.trainers.in_tool import reward as in_tool
from assay.trainers.register import TRAINERS
from tests import from_files
from tests.cli.conftest import answer, assert_one_line, call
from tests.tiny_labs import make_lab

OWN = """
def short(row, completion):
    print("of the user")
    return 1.0 if len(completion.text) < int(row.extra.get("limit", 4)) else 0.25
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_lab(tmp_path, until="[evaluate.dev]").parent


def export(lab: Path, *options: object, tool: str = "trl", stage: str = "rl", proven: bool = False):
    start = f'stage.{stage}.start="base"'
    arguments = ("export", lab / "tiny.toml", lab / "out", "--lab", lab, "--to", tool)
    unproven = () if proven else ("--unproven",)
    return call(*arguments, "--stage", stage, *unproven, "--set", start, *options)


def session(lab: Path) -> Session:
    experiment = read_whole(lab / "tiny.toml", ['stage.rl.start="base"'], lab)
    return Session(experiment, RunDirectory(lab, "tiny", "x"), experiment.seeds[0], Silent())


def grpo_of(given: Session) -> GrpoStage:
    stage = given.experiment.stage["rl"]
    assert isinstance(stage, GrpoStage)
    return stage


def test_a_tool_ends_answers_at_every_token_at_which_assay_does(lab: Path) -> None:
    stated = json.loads((lab / "model" / "generation_config.json").read_text())
    learner = session(lab).learner
    assert isinstance(learner, LanguageLearner)
    ends = sorted(learner.base.end_tokens)  # the template's, too
    assert stated["eos_token_id"] != ends
    assert export(lab).exit_code == 0
    sent = lab / "out" / "model"
    assert GenerationConfig.from_pretrained(sent).eos_token_id == ends
    assert json.loads((sent / "generation_config.json").read_text()) == {
        **stated,
        "eos_token_id": ends,
    }


def test_a_model_with_dropout_is_given_away_without(lab: Path) -> None:
    config = lab / "model" / "config.json"
    stated = json.loads(config.read_text())
    assert export(lab).exit_code == 0
    assert (lab / "out" / "model" / "config.json").read_text() == config.read_text()
    shutil.rmtree(lab / "out")
    config.write_text(json.dumps(stated | {"attention_dropout": 0.1}))
    assert export(lab).exit_code == 0
    sent = json.loads((lab / "out" / "model" / "config.json").read_text())
    assert sent == stated | {"attention_dropout": 0.0}


FILES = {"trl": "data/train.jsonl", "swift": "data/train.jsonl", "verl": "data/train.parquet"}


@pytest.mark.parametrize("tool", FILES)
def test_rows_come_in_the_order_of_the_stages_visits_over_all_epochs(lab: Path, tool: str) -> None:
    made = answer(export(lab, "--json", "--set", "stage.rl.steps=11", tool=tool))["result"]
    given = session(lab)
    stage = grpo_of(given)
    own = given.stage_input(stage)
    wanted = [row.id for _, row in visits(own.rows, own.seed, 0, 11 * stage.prompts, own.order)]
    file = lab / "out" / FILES[tool]
    if tool == "verl":
        import pyarrow.parquet

        found = [each["id"] for each in pyarrow.parquet.read_table(file)["extra_info"].to_pylist()]
    else:
        found = [json.loads(line)["id"] for line in file.read_text().splitlines()]
    assert found == wanted and len(set(found)) < len(found) == made["rows"]


def judged(folder: Path, answers: list[dict]) -> list[dict]:
    command = [sys.executable, "-m", in_tool.MODULE, str(folder)]
    sent = json.dumps(answers) + "\n"
    done = subprocess.run(command, input=sent, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_reward_is_assays_own(lab: Path) -> None:
    export(lab)
    given = session(lab)
    stage = grpo_of(given)
    rows = given.stage_input(stage).rows[:3]
    texts = [str(rows[0].gold or rows[0].messages[-1].content), "7", "no number"]
    pairs = [(row, Completion(t, (1,) * 5)) for row, t in zip(rows, texts, strict=True)]
    judge = given.stage_input(stage).judge
    assert judge is not None
    with given.reward_runner(judge, stage) as runner:
        wanted = [(r.value, r.parts) for r in runner.score(pairs)]
    asked = [
        {"id": row.id, "text": each.text, "tokens": list(each.tokens), "ended": "stop"}
        for row, each in pairs
    ]
    found = judged(lab / "out", asked)
    assert [(each["value"], each["parts"]) for each in found] == wanted
    assert len({value for value, _ in wanted}) > 1


def test_a_users_reward_goes_along_and_may_print(lab: Path) -> None:
    (lab / "own").mkdir()
    (lab / "own" / "mine.py").write_text(OWN)
    export(lab, "--set", 'stage.rl.reward="path:own/mine.py:short"')
    assert (lab / "out" / "own" / "mine.py").read_text() == OWN
    (lab / "own" / "mine.py").unlink()
    id_ = json.loads((lab / "out" / "rows.jsonl").read_text().splitlines()[0])["id"]
    asked = [{"id": id_, "text": t, "tokens": [], "ended": "stop"} for t in ("ab", "abcdef")]
    assert [each["value"] for each in judged(lab / "out", asked)] == [1.0, 0.25]


def test_long_answers_are_punished_as_in_assay(lab: Path) -> None:
    (lab / "mine.py").write_text(OWN)
    export(
        lab,
        *("--set", 'stage.rl.reward="path:mine.py:short"'),
        *("--set", "stage.rl.overlong={ buffer = 4, factor = 0.5 }"),
    )
    id_ = json.loads((lab / "out" / "rows.jsonl").read_text().splitlines()[0])["id"]
    asked = [{"id": id_, "text": "a", "tokens": [1] * n, "ended": "stop"} for n in (8, 10, 12)]
    found = [each["value"] for each in judged(lab / "out", asked)]
    assert found == [1.0, 0.75, 0.5]  # max_tokens is 12: DAPO's eq. 13 from 8 on


class Tokenizer:
    def decode(self, tokens, skip_special_tokens):
        assert not skip_special_tokens
        return " ".join(map(str, tokens))


def test_an_answer_has_its_text_without_the_end_and_says_how_it_ended(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(lab)
    judge = in_tool.Judge(lab / "out")
    judge.__dict__["tokenizer"] = Tokenizer()
    end = judge.settings["end_tokens"][0]
    assert judge.answer("a", [5, 6, end]) == {
        "id": "a",
        "text": "5 6",
        "tokens": [5, 6, end],
        "ended": "stop",
    }
    assert judge.answer("a", [5] * 12)["ended"] == "length"
    monkeypatch.setattr(judge, "rewards", lambda ids, _: [{"value": None, "why": "no"}])
    with pytest.raises(RuntimeError, match="no reward for an answer to row x: no"):
        judge.certain(["x"], [[5]], 3)
    (noted,) = (lab / "out" / "output" / "answers").glob("0-*.jsonl")
    assert json.loads(noted.read_text()) == {"step": 3, "key": "", "value": None, "why": "no"}


def test_what_cannot_be_exported_is_said_in_one_line_and_leaves_nothing(lab: Path) -> None:
    before = sorted(lab.rglob("*"))
    foreign = export(lab, "--set", "stage.rl.algorithm=egpo")
    assert_one_line(foreign, "stage.rl.advantage", "--allow advantage")
    untrained = export(lab, "--set", 'stage.rl.start="sft.last"')
    assert_one_line(untrained, "stage.rl.start", "run:tiny/ID@sft.last")
    assert sorted(lab.rglob("*")) == before


def test_an_unknown_tool_another_method_and_a_taken_folder_are_refused(lab: Path) -> None:
    assert_one_line(export(lab, tool="tlr"), "tlr", "trl")
    assert_one_line(export(lab, tool="verl", stage="sft"), "stage.sft.method", "grpo")
    (lab / "out").mkdir()
    (lab / "out" / "mine.txt").write_text("kept")
    assert_one_line(export(lab), "out")
    assert [each.name for each in (lab / "out").iterdir()] == ["mine.txt"]


def test_rows_go_unproven_only_when_asked(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.lab.run.trainer_export.installed", lambda name: None)
    refused = export(lab, stage="sft", proven=True)
    assert_one_line(refused, "assay engines add trl", "--unproven")
    assert answer(export(lab, "--json", stage="sft"))["result"]["proof"] is None
    assert "not loaded in the tool" in (lab / "out" / "README.md").read_text()


def test_several_answers_of_a_row_are_no_row_of_trl(lab: Path) -> None:
    said = [("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4")]
    row = {"id": "two", "messages": [{"role": r, "content": c} for r, c in said]}
    with (lab / "sums.jsonl").open("a") as file:
        file.write("\n".join(json.dumps({**row, "id": f"two{n}"}) for n in range(9)) + "\n")
    assert_one_line(export(lab, stage="sft"), "expand", "each_turn")
    export(lab, tool="swift", stage="sft")
    lines = (lab / "out" / FILES["swift"]).read_text().splitlines()
    roles = [[m["role"] for m in json.loads(line)["messages"]] for line in lines]
    assert ["user", "assistant", "user", "assistant"] in [each[-4:] for each in roles]


def test_the_files_of_the_folder_are_there_and_scripts_can_be_started(lab: Path) -> None:
    export(lab, tool="verl")
    names = {each.name for each in (lab / "out").iterdir()}
    assert {"run.sh", "slurm.sh", "ray.sh", "config.yaml", "verl_reward.py", "model"} <= names
    for script in (lab / "out").glob("*.sh"):
        assert script.stat().st_mode & 0o111 and not re.search(
            r"(?<!\$)\{[A-Z_]+\}", script.read_text()
        )
        subprocess.run(["bash", "-n", str(script)], check=True)
    assert len((lab / "out" / "README.md").read_text().strip().splitlines()) == 5


def launched(lab: Path, says: str, **more: str) -> subprocess.CompletedProcess[str]:
    """run.sh with a tool of version 0.0.1 that says what it trains with."""
    python = lab / "python"
    python.write_text(
        f'#!/bin/sh\nif [ "$1" = -c ]; then echo 0.0.1; else echo "trains: {says}"; fi'
    )
    python.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(python), **more}
    command = ["bash", str(lab / "out" / "run.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("tool", FILES)
def test_another_version_of_the_tool_trains_only_where_that_is_asked_for(
    lab: Path, tool: str
) -> None:
    export(lab, tool=tool)
    refused = launched(lab, "$*")
    name, _, version = TRAINERS[tool].package.partition("==")
    assert refused.returncode == 2 and not refused.stdout
    (line,) = refused.stderr.splitlines()
    assert f"{name} {version}" in line and "0.0.1" in line and "UNTESTED=1" in line
    assert not (lab / "out" / "output").exists()
    assert launched(lab, "$*", UNTESTED="1").stdout.startswith("trains: ")


def test_sessions_of_ray_that_ended_programs_left_are_removed_by_the_next(lab: Path) -> None:
    export(lab, tool="verl")
    left = Path("/tmp/assay-verl-999999999")
    left.mkdir(exist_ok=True)
    done = launched(lab, "$RAY_TMPDIR", UNTESTED="1")
    own = Path(done.stdout.removeprefix("trains: ").strip())
    assert own.is_dir() and own.name.startswith("assay-verl-") and not left.exists()
    own.rmdir()


ASKING = """
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.task import BaseTask


class Own(BaseTask):
    name = "own"
    rewards = {"asked": JudgeReward(lambda pairs, helpers: [], helpers=("big",))}

    def dialogue(self, row):
        return "a dialogue" if DIALOGUES else None


TASK = Own()
"""


@pytest.mark.parametrize(
    ("dialogues", "words"),
    [(False, ("stage.rl.reward", "helper model 'big'")), (True, ("stage.rl.data", "a dialogue"))],
)
def test_what_only_a_run_can_give_is_refused(
    lab: Path, dialogues: bool, words: tuple[str, ...]
) -> None:
    (lab / "own.py").write_text(ASKING.replace("DIALOGUES", str(dialogues)))
    text = (lab / "tiny.toml").read_text().replace('"math"', '"path:own.py"')
    text = text.replace("{ accuracy = 1.0, cosine = 0.5 }", '"asked"')
    helper = '\n[model.big]\nsource = "scripted:big.jsonl"\n'
    (lab / "big.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    policy = '[model]\npolicy = "path:model"\n'
    text = text.replace('model = "path:model"\n', "") + policy + helper
    (lab / "tiny.toml").write_text(text)
    assert_one_line(export(lab), *words)
    assert not (lab / "out").exists()


def test_rows_that_the_tool_renders_otherwise_are_refused_with_the_token(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool's process is left out; tests/engines/test_proof.py asks the real ones."""

    def loaded(name: str, script: Path, request: dict[str, Any], timeout: float) -> Any:
        tokenizer = AutoTokenizer.from_pretrained(request["model"])
        talks = [line.value["prompt"] for line in read_jsonl(Path(request["file"]))]
        texts = tokenizer.apply_chat_template(talks, add_generation_prompt=True, tokenize=False)
        return [{"prompt": tokenizer.encode(t.replace("=", "#"))} for t in texts]

    monkeypatch.setattr("assay.lab.run.trainer_export.installed", lambda name: Path("python"))
    monkeypatch.setattr("assay.engines.proof.ask", loaded)
    arguments = ("export", lab / "tiny.toml", lab / "out", "--lab", lab, "--to", "trl")
    done = call(*arguments, "--stage", "rl", "--set", 'stage.rl.start="base"')
    assert_one_line(done, "stage.rl.rendering", "renders the rows otherwise", "'=' in one and '#'")
    assert not (lab / "out").exists()


def test_a_stage_goes_on_from_a_checkpoint_of_a_run(lab: Path) -> None:
    (run,) = from_files.start(
        lab / "tiny.toml", ["stage.sft.steps=1", "stage.rl.steps=1"], root=lab
    )
    done = export(lab, "--set", f'stage.rl.start="run:tiny/{run.id}@sft.last"')
    assert done.exit_code == 0, done.stderr
    trained = run.path / "checkpoints" / "sft" / "step-000001" / "model.safetensors"
    sent = load_file(lab / "out" / "model" / "model.safetensors")
    own = load_file(trained)
    assert own.keys() == sent.keys()
    assert all(torch.equal(own[name], sent[name]) for name in own)
    base = load_file(lab / "model" / "model.safetensors")
    assert any(not torch.equal(base[name], sent[name]) for name in base)
