"""A run that a tool made is a run of the lab, with what is unknown marked; half of one is none.

The tools' logs and completions are recorded ones; the weights are the lab's model, moved a little.
"""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from assay.cli.main import app
from assay.data.episode import Episode, Turn
from assay.data.files import prompt_sha256
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.experiment import Experiment
from assay.judge.confounds import differences
from assay.lab.models.learner import question
from assay.lab.monitor.observer import Silent
from assay.lab.run import trainer_import
from assay.lab.run.trainer_import import LOGGED, first_loss
from assay.lab.session.session import Session
from assay.lab.session.validate import read_whole
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.history import History, evaluation_records, measured_checkpoints
from assay.runs.run_directory import IMPORTED, RunDirectory, all_runs, read_manifest, stored_status
from tests.cli.conftest import answer, assert_one_line, call
from tests.few import few
from tests.forked import forked
from tests.from_files import start
from tests.models.edits import edit_json
from tests.models.folders import tiny_model
from tests.tiny_labs import make_lab, model_of
from tests.trainers.test_in_tools import losses_by_hand

RECORDED = Path(__file__).parent / "recorded"
START = ("--set", 'stage.rl.start="base"', "--set", "stage.rl.steps=4")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_lab(tmp_path / "lab", until="[evaluate.dev]").parent


def moved_weights(lab: Path, checkpoint: Path, by: float) -> None:
    """The lab's model as the tool would have saved it after training."""
    shutil.copytree(lab / "model", checkpoint, dirs_exist_ok=True)
    state = load_file(lab / "model" / "model.safetensors")
    state = {name: tensor + by for name, tensor in state.items()}
    save_file(state, checkpoint / "model.safetensors", metadata={"format": "pt"})


def plain(lab: Path, tool: str = "trl") -> Path:
    """A folder as the tool leaves it, without Assay."""
    folder = shutil.copytree(RECORDED / f"{tool}-grpo", lab / "made")
    shutil.rmtree(folder / "answers", ignore_errors=True)
    for step in (2, 4):
        moved_weights(lab, folder / f"checkpoint-{step}", step / 100)
    if tool == "trl":
        (folder / "logging.jsonl").unlink()
        for file in (folder / "completions").iterdir():
            without_own_column(file)
        arguments = RECORDED / "plain" / "trl" / "grpo.bin"
        shutil.copy(arguments, folder / "checkpoint-4" / "training_args.bin")
    else:
        args = json.loads((RECORDED / "plain" / "swift" / "args.json").read_text())
        # As ms-swift has them by itself: epochs, and not the full softmax.
        args |= {"rlhf_type": "grpo", "max_steps": -1, "top_p": 0.9, "top_k": 50}
        (folder / "args.json").write_text(json.dumps(args))
    return folder


def without_own_column(file: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(file).drop_columns(["assay"]), file)


def taken(lab: Path, *arguments: object):
    return call("import", *arguments, "--lab", lab, "--json")


def imported(lab: Path, folder: Path, *more: object, tool: str = "trl") -> dict[str, Any]:
    """What `assay import` says; it has to end well."""
    model = () if (folder / "translation.json").is_file() else ("--model", "path:model")
    done = taken(lab, folder, "--from", tool, *model, *more)
    assert done.exit_code == 0, done.stderr
    return answer(done) | answer(done)["result"]


def only_run(lab: Path) -> RunDirectory:
    (run,) = all_runs(lab)
    return run


def logits_of(lab: Path, stage: str, ids: torch.Tensor) -> torch.Tensor:
    """Of the last checkpoint of the stage that the only run has."""
    session = Session(History(only_run(lab)).experiment, only_run(lab), 0, Silent())
    with torch.no_grad():
        return model_of(session, CheckpointReference(stage, "last"))(ids).logits


def confounds_of_both(lab: Path) -> dict[str, str]:
    """By path what the other of two runs has."""
    one, two = map(read_manifest, all_runs(lab))
    return {d.path: d.other for d in differences(one, two) if d.kind == "confound"}


@pytest.mark.parametrize("tool", ["trl", "swift"])
def test_a_run_made_without_assay_is_one_of_the_labs(lab: Path, tool: str) -> None:
    folder = plain(lab, tool)
    imported(lab, folder, tool=tool)
    run = only_run(lab)
    history = History(run)
    rewards = [line["reward_mean"] for line in history.lines("grpo")]
    logged = json.loads((folder / "checkpoint-4" / "trainer_state.json").read_text())
    wanted = [each["reward"] for each in logged["log_history"] if "reward" in each]
    assert rewards == pytest.approx(wanted) and len(rewards) == 4
    for step in range(1, 5):
        samples = list(history.samples("grpo", step))
        assert sum(s.reward or 0 for s in samples) / len(samples) == pytest.approx(wanted[step - 1])
        assert all(s.facts["prompt"] for s in samples)
    assert history.checkpoints("grpo") == [2, 4] and history.experiment.stage["grpo"].steps == 4
    assert history.experiment.as_reported == (tool == "swift")
    kept = load_file(run.checkpoint("grpo", 4) / "model.safetensors")
    theirs = load_file(folder / "checkpoint-4" / "model.safetensors")
    assert all(torch.equal(kept[name], theirs[name]) for name in theirs)
    assert call("runs", "verify", run.name, "--lab", lab).exit_code == 0
    page = (run.path / "report.html").read_text()
    unknown = read_manifest(run)[IMPORTED]["unknown"]
    assert {"stage.grpo.data", "stage.grpo.reward", "machine"} <= {*unknown}
    assert all(path in page for path in unknown)


def test_an_adapter_that_no_lora_here_holds_is_whole_weights_with_pefts_logits(lab: Path) -> None:
    folder = plain(lab)
    base = load_model(lab / "model", choose_precision("fp32", "cpu")).model
    config = LoraConfig(r=2, target_modules=["q_proj"], alpha_pattern={"q_proj": 64})
    model = get_peft_model(base, config).eval()
    ids = torch.arange(0, 250, 9)[None]
    for step in (2, 4):
        (folder / f"checkpoint-{step}" / "model.safetensors").unlink()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight += 0.1 if "lora_B" in name else 0
        model.save_pretrained(str(folder / f"checkpoint-{step}"))
    result = imported(lab, folder)
    assert "merged by peft into whole weights" in result["differences"]["adapter_config.json"]
    assert "stage.grpo.adapt.kind" in result["unknown"]
    with torch.no_grad():
        theirs = model(input_ids=ids).logits
    assert float((logits_of(lab, "grpo", ids) - theirs).abs().max()) < 1e-5


def test_an_adapter_whose_base_peft_draws_at_random_is_refused_with_the_reason(lab: Path) -> None:
    base = load_model(lab / "model", choose_precision("fp32", "cpu")).model
    random: Any = "pissa_niter_1"
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=random)
    get_peft_model(base, config).save_pretrained(str(folder := lab / "final"))
    done = taken(lab, folder, "--from", "trl", "--model", "path:model")
    assert_one_line(done, "peft opens it as another model each time")
    assert not all_runs(lab)


def test_a_checkpoint_whose_step_was_not_logged_is_taken_over(lab: Path) -> None:
    folder = plain(lab)
    state = folder / "checkpoint-4" / "trainer_state.json"
    known = json.loads(state.read_text())
    known["log_history"] = [e for e in known["log_history"] if e["step"] not in (2, 4)]
    state.write_text(json.dumps(known))
    imported(lab, folder)
    history = History(only_run(lab))
    assert history.checkpoints("grpo") == [2, 4]
    assert [line["step"] for line in history.lines("grpo")] == [1, 3]


@pytest.mark.parametrize("left", ["the last checkpoint", "what was saved at the end"])
def test_a_folder_of_weights_alone_gives_its_weights(lab: Path, left: str) -> None:
    folder = plain(lab) / "checkpoint-4"
    logged = left == "the last checkpoint"
    if not logged:
        (folder / "trainer_state.json").unlink()
        folder = folder.rename(lab / "final")
    unknown, history = imported(lab, folder)["unknown"], History(only_run(lab))
    assert ("metrics" not in unknown) == logged and "stage.grpo.start" in unknown
    (step,) = history.checkpoints("grpo")
    assert (step == 4) == logged and len(history.lines("grpo")) == (4 if logged else 0)
    kept = load_file(history.run.checkpoint("grpo", step) / "model.safetensors")
    theirs = load_file(folder / "model.safetensors")
    assert all(torch.equal(kept[name], theirs[name]) for name in theirs)
    assert call("runs", "verify", history.run.name, "--lab", lab).exit_code == 0


def saved(
    lab: Path, shard: str = "5GB", rope: dict[str, object] | None = None, **sizes: Any
) -> tuple[Path, torch.Tensor]:
    """A folder of whole weights, and what Transformers computes with it."""
    model: Any = tiny_model(max_position_embeddings=2048, **sizes)
    model.config.rope_parameters = model.config.rope_parameters | (rope or {})
    model.save_pretrained(folder := lab / "final", max_shard_size=shard)
    with torch.no_grad():
        return folder, AutoModelForCausalLM.from_pretrained(folder).eval()(IDS).logits


IDS = torch.arange(0, 250, 9)[None]
OWN_CONFIG: dict[str, dict[str, Any]] = {
    "an untied head": {"tied": False},
    "another base of its rotation": {"rope": {"rope_theta": 100.0}},
    "another scale of its rotation": {"rope": {"rope_type": "linear", "factor": 4.0}},
    "shards with an index": {"shard": "10KB"},
}


@few("change", OWN_CONFIG, 2)
def test_whole_weights_are_read_by_the_config_beside_them(change: str, lab: Path) -> None:
    folder, want = saved(lab, **OWN_CONFIG[change])
    assert (folder / "model.safetensors.index.json").is_file() == ("shard" in OWN_CONFIG[change])
    imported(lab, folder)
    ours = logits_of(lab, "sft", IDS)
    with torch.no_grad():
        base = load_model(lab / "model", choose_precision("fp32", "cpu")).model(IDS).logits
    assert float((ours - want).abs().max()) < 1e-6
    assert float((base - want).abs().max()) > 1e-3 or "shard" in OWN_CONFIG[change]


def test_weights_of_another_vocabulary_are_refused_by_its_size(lab: Path) -> None:
    folder, _ = saved(lab, vocab_size=300)
    done = taken(lab, folder, "--from", "trl", "--model", "path:model")
    assert_one_line(done, "config.json", "vocab_size", "is 300, and 259 in the base model")
    edit_json(folder / "config.json", num_hidden_layers=10**9)
    done = taken(lab, folder, "--from", "trl", "--model", "path:model")
    assert_one_line(done, "config.json", "num_hidden_layers")
    assert not all_runs(lab) and not [*lab.glob("runs/*/*")]


def test_what_a_run_of_ms_swift_went_on_from_is_told(lab: Path) -> None:
    folder = plain(lab, "swift")
    file, starts = folder / "args.json", []
    for name, adapters in (("fresh", []), ("further", ["/elsewhere/checkpoint-9"])):
        edit_json(file, adapters=adapters, resume_from_checkpoint=None)
        result = imported(lab, folder, "--name", name, tool="swift")
        starts.append(("stage.grpo.start" in result["unknown"], result["differences"].get("start")))
    assert starts == [(False, None), (True, "went on from adapters /elsewhere/checkpoint-9")]
    assert "stages.grpo.start" in confounds_of_both(lab)


def test_what_is_unknown_of_two_runs_is_never_equal(lab: Path) -> None:
    folder = plain(lab)
    for name in ("one", "two"):
        imported(lab, folder, "--name", name)
    one = read_manifest(all_runs(lab)[0])
    assert not [d for d in differences(one, one) if d.kind == "confound"]
    found = confounds_of_both(lab)
    assert {"data.train.rows", "stages.grpo.reward.unknown.source"} <= found.keys()
    # What both folders tell is the same of both.
    assert not any(path.startswith("stages.grpo.optimizer") for path in found)


def test_a_setting_without_counterpart_is_a_confound_of_two_imports(lab: Path) -> None:
    folder = plain(lab, "swift")
    for name, penalty in (("one", 1.0), ("two", 1.3)):
        edit_json(folder / "args.json", repetition_penalty=penalty)
        imported(lab, folder, "--name", name, tool="swift")
    assert "1.3" in confounds_of_both(lab)["stages.grpo.unlike.repetition_penalty"]


@pytest.mark.parametrize("dft", [False, True])
def test_the_loss_of_sft_is_nll_only_where_it_is_one(lab: Path, dft: bool) -> None:
    folder = shutil.copytree(RECORDED / "plain" / "swift", lab / "made")
    edit_json(folder / "args.json", tuner_type="full", enable_dft_loss=dft)
    moved_weights(lab, folder / "checkpoint-4", 0.01)
    (folder / "checkpoint-4" / "trainer_state.json").write_text("{}")
    imported(lab, folder, tool="swift")
    run = only_run(lab)
    for line in History(run).lines("sft"):
        assert ("nll" in line, "loss" in line, "swift/loss" in line) == (not dft, not dft, dft)
        assert "validation_loss" not in line or not dft
    assert ("enable_dft_loss" in read_manifest(run)[IMPORTED]["differences"]) == dft


def test_what_run_sh_was_told_else_is_listed_and_is_a_confound(lab: Path) -> None:
    folder = exported(lab)
    arguments = RECORDED / "plain" / "trl" / "grpo.bin"
    shutil.copy(arguments, folder / "output" / "checkpoint-4" / "training_args.bin")
    told = imported(lab, folder)["differences"]
    assert told["beta"] == "is 0.02, where an export has 0.0"
    assert "beta" in read_manifest(only_run(lab))["stages"]["rl"]["unlike"]
    assert "learning_rate" not in told and "max_completion_length" not in told


def exported(lab: Path) -> Path:
    """A folder that was exported, and what TRL wrote into it."""
    arguments = ("export", lab / "tiny.toml", lab / "out", "--lab", lab, "--to", "trl")
    done = call(*arguments, "--stage", "rl", "--unproven", *START)
    assert done.exit_code == 0, done.stderr
    shutil.copytree(RECORDED / "trl-grpo", lab / "out" / "output")
    for step in (2, 4):
        moved_weights(lab, lab / "out" / "output" / f"checkpoint-{step}", step / 100)
    return lab / "out"


def test_the_first_loss_proves_where_an_exported_run_started_or_its_start_is_unknown(
    lab: Path,
) -> None:
    state = load_file(weights := lab / "model" / "model.safetensors")
    # So that bf16 moves the loss of single tokens by more than the rounding of a log.
    save_file({n: 2 * w for n, w in state.items()}, weights, metadata={"format": "pt"})
    arguments = ("export", lab / "tiny.toml", lab / "out", "--lab", lab, "--to", "trl")
    sft = ("--stage", "sft", "--unproven", "--set", "stage.sft.steps=4")
    assert call(*arguments, *sft).exit_code == 0
    moved_weights(lab, folder := lab / "out" / "output" / "checkpoint-4", 0.01)
    first, second, *_ = losses_by_hand(lab)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = losses_by_hand(lab)[0]
    told = {}
    for name, step, loss in (
        ("same", 1, round(first, 4)),
        ("in bf16", 1, rounded),
        ("near", 1, first + 10 * LOGGED),
        ("off", 1, first * 1.003),
        ("another", 1, second),
        ("late", 2, first),
    ):
        log = [{"step": step, "loss": loss}, {"step": 4, "loss": 1.0}]
        state = {"global_step": 4, "max_steps": 4, "log_history": log}
        (folder / "trainer_state.json").write_text(json.dumps(state))
        result = imported(lab, lab / "out", "--name", name.replace(" ", "-"))
        start = result["differences"].get("start", "")
        told[name] = "stage.sft.start" in result["unknown"], start
    assert first != rounded and told["same"] == told["in bf16"] == told["near"] == (False, "")
    for name, logged in (("off", first * 1.003), ("another", second)):
        words = f"its first loss is {logged:.4f}, and {first:.4f} on the same rows"
        assert told[name][0] and told[name][1].startswith(words)
    words = "as the export names it; no first loss proves it: the tool logged none of step 1"
    assert told["late"] == (False, words)


def test_a_first_loss_may_be_off_by_what_bf16_makes_of_it_and_no_more() -> None:
    model = tiny_model()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)  # so that the loss depends on the weights' digits
    ids = tuple(torch.randint(0, 256, (60,), generator=torch.Generator().manual_seed(3)).tolist())
    turns = [Turn(ids[:n], ids[n : n + 20], (True,) * 20) for n in (10, 40)]
    episodes = [Episode(str(n), str(n), (turn,)) for n, turn in enumerate(turns)]
    policy = LanguagePolicy(model, choose_precision("fp32", "cpu"), frozenset({256}))
    own, give = first_loss(policy, episodes, 64)

    def by_transformers() -> float:
        parts = [(torch.tensor(ids[: n + 20]), n) for n in (10, 40)]
        logits = [model(each[None]).logits[0, n - 1 : -1].float() for each, n in parts]
        wanted = torch.cat([each[n:] for each, n in parts])
        return cross_entropy(torch.cat(logits), wanted).item()

    with torch.no_grad():
        exact = by_transformers()
        with torch.autocast("cpu", torch.bfloat16):
            rounded = by_transformers()
    assert own == pytest.approx(exact, rel=1e-5)
    assert 1e-4 < abs(rounded - exact) <= give < 0.001 * exact


def own_session(lab: Path, changed: Experiment | None = None) -> Session:
    experiment = changed or read_whole(lab / "tiny.toml", [START[1], START[3]], lab)
    return Session(experiment, RunDirectory(lab, "tiny", "x"), experiment.seeds[0], Silent())


def test_of_an_exported_folder_rows_prompts_and_data_are_the_labs(lab: Path) -> None:
    folder = exported(lab)
    assert imported(lab, folder)["unknown"] == ["machine"]
    run, session = only_run(lab), own_session(lab)
    stage = session.experiment.stage["rl"]
    given = session.stage_input(stage)
    prompts = {
        row.id: prompt_sha256(given.encoder.prompt(row, question(given.task, row)))
        for row in given.rows
    }
    samples = list(History(run).samples("rl", 1, tokens=True))
    assert samples and all(s.prompt == prompts[s.row] and s.tokens for s in samples)
    assert [s.number for s in samples] == [0, 1, 2, 3] * 2 and {s.visit for s in samples} == {0}
    line = History(run).lines("rl")[0]
    assert line["completion_tokens"] == sum(len(s.tokens) for s in samples)
    # The data is fingerprinted as it was when the folder was made: that of the lab.
    from assay.lab.session.manifest import make_manifest
    from assay.lab.session.tool_stage import stage_alone

    alone = stage_alone(session.experiment, "rl", stage)  # type: ignore[arg-type]
    own = make_manifest(own_session(lab, alone))
    found = differences(json.loads(json.dumps(own)), read_manifest(run))
    confounds = {d.path for d in found if d.kind == "confound"}
    assert {path for path in confounds if not path.startswith("stages.rl.unlike")} == {
        "stages.rl.trainer"
    }


def test_nothing_is_left_of_a_run_with_a_checkpoint_that_cannot_be_opened(lab: Path) -> None:
    folder = plain(lab)
    weights = folder / "checkpoint-4" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    done = taken(lab, folder, "--from", "trl", "--model", "path:model")
    assert_one_line(done, "not a whole safetensors file")
    assert not (lab / "runs" / "made").exists()


def test_a_checkpoint_that_was_never_finished_is_left_out_by_name(lab: Path) -> None:
    folder = plain(lab)
    state = folder / "checkpoint-4" / "trainer_state.json"
    state.write_text(state.read_text()[:200])
    assert "checkpoint-4 is not whole" in imported(lab, folder)["warnings"][0]
    assert History(only_run(lab)).checkpoints("grpo") == [2]


def test_bad_input_is_one_line_and_leaves_nothing(lab: Path) -> None:
    folder = plain(lab)
    none = taken(lab, lab / "nowhere", "--from", "trl")
    assert_one_line(none, "no such folder")
    assert_one_line(taken(lab, folder, "--from", "trl"), "does not say which model")
    assert_one_line(taken(lab, folder, "--from", "swift"), "holds nothing of ms-swift's")
    assert_one_line(taken(lab, folder, "--from", "vrl"), "unknown trainer 'vrl'")
    made = exported(lab)
    assert_one_line(taken(lab, made, "--from", "verl"), "was exported for TRL")
    about = (made / "translation.json").read_text()
    (made / "translation.json").write_text(about.replace("trl==", "tlr=="))
    assert_one_line(taken(lab, made, "--from", "trl"), "which is none of ms-swift, verl, trl")
    (made / "translation.json").write_text(about)
    shutil.rmtree(made / "output")
    assert_one_line(taken(lab, made, "--from", "trl"), "not trained yet")
    assert not all_runs(lab)
    given = (folder, "--from", "trl", "--model", "path:model", "--name", "mine")
    assert taken(lab, *given).exit_code == 0
    assert_one_line(taken(lab, *given), "a run named 'mine' exists")
    assert_one_line(taken(lab, *given[:-1], "../x"), "'../x' is no name")
    assert_one_line(taken(lab, *given[:-1], "other", "--task", "nope"), "nope")
    assert len(all_runs(lab)) == 1


GATED = """
[guard.long]
metric = "length_mean"
above = 1000
stage = "rl"
"""


@pytest.mark.slow
def test_evaluations_of_the_exported_file_are_measured_and_what_belongs_to_training_is_named(
    lab: Path,
) -> None:
    whole = make_lab(lab / "whole", until="[evaluate.sampled]").parent
    (whole / "tiny.toml").write_text((whole / "tiny.toml").read_text() + GATED)
    folder = exported(whole)
    result = imported(whole, folder)
    assert result["evaluations"] == ["test"]
    assert result["unasked"] == ["evaluate.dev", "guard.long"]
    (run,) = all_runs(whole)
    page = (run.path / "report.html").read_text()
    assert "guard.long" in page and f"assay resume {run.name}" in page
    measured = call("resume", run.name, "--lab", whole)
    assert measured.exit_code == 0, measured.stderr
    assert "measured on what it lacked" in measured.stdout
    (record,) = evaluation_records(run)
    # `sft.best` is no checkpoint of this stage, and "rl.last" is its last.
    assert {*measured_checkpoints(run, record)} == {"base", "rl.step-000004"}
    assert f"assay resume {run.name}" not in (run.path / "report.html").read_text()
    # Neither the evaluation nor the start keeps it from being compared with the lab's own run.
    (own,) = start(whole / "tiny.toml", [*START[1::2], "stage.sft.steps=1"], root=whole)
    compared = answer(call("compare", own.name, run.name, "--lab", whole, "--json"))["result"]
    confounds = {d["path"] for d in compared["differences"] if d["kind"] == "confound"}
    assert "stages.rl.trainer" in confounds
    assert not [path for path in confounds if path.startswith(("evaluation.test", "base_weights."))]


def test_each_seed_is_taken_over_once_under_one_name(lab: Path) -> None:
    folder = exported(lab)
    imported(lab, folder, "--name", "mine")
    again = taken(lab, folder, "--from", "trl", "--name", "mine")
    assert_one_line(again, "a run named 'mine' exists")
    edit_json(folder / "manifest.json", seed=8)
    imported(lab, folder, "--name", "mine")
    assert [stored_status(run.path).seed for run in all_runs(lab)] == [7, 8]


def killed_before_its_manifest(*words: str) -> None:
    trainer_import.write_manifest = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    app(list(words))


def test_the_next_import_clears_what_a_killed_one_left(lab: Path) -> None:
    folder = exported(lab)
    given = ("import", folder, "--from", "trl", "--name", "mine", "--lab", lab)
    killed = forked(killed_before_its_manifest, *map(str, given), log=lab / "log")
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    left = [*(lab / "runs" / "mine").iterdir()]
    assert left and not all_runs(lab)
    assert call(*given).exit_code == 0
    (run,) = all_runs(lab)
    assert [*(lab / "runs" / "mine").iterdir()] == [run.path]
