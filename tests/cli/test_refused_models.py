"""Models that nothing can be done with end in one line, with no run made and no weight read."""

import json
from pathlib import Path

import pytest

from assay.lab.models.language_learner import model_folder
from assay.lab.run import evaluate_again
from tests.cli.conftest import TinyLab, answer, assert_one_line, call

T5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}


def evaluation(lab: TinyLab, *more: object) -> tuple[object, ...]:
    """`assay eval` of the lab's model on two items."""
    given = ("--option", f"path={lab.root / 'test.jsonl'}", "--option", "format=messages")
    benchmark = ("--benchmark", "math/gsm8k", "--max-tokens", 4, "--take", 2)
    return ("eval", "path:model", "--lab", lab.root, *benchmark, *given, *more)


def edit(lab: TinyLab, file: str, **changes: object) -> None:
    path = lab.root / "model" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_no_verb_works_on_what_its_config_refuses(lab: TinyLab) -> None:
    edit(lab, "config.json", **T5)
    target = ("path:model", "--benchmark", "math/gsm8k", "--lab", lab.root)
    for arguments in (
        ("check", lab.file, "--lab", lab.root),
        ("run", lab.file, "--lab", lab.root),
        ("eval", *target),
        ("serve", "path:model", "--port", 0, "--lab", lab.root),
    ):
        assert_one_line(call(*arguments), "config.json", "'t5'", "no causal language model")
    assert not (lab.root / "runs").exists()


def test_a_run_whose_model_is_no_longer_what_it_was_is_one_line_for_every_verb(
    trained: TinyLab, tmp_path: Path
) -> None:
    edit(trained, "config.json", **T5)
    out = tmp_path / "out"
    for arguments in (
        ("eval", "tiny@rl.last", *evaluation(trained)[4:]),
        ("serve", "tiny@rl.last", "--port", 0),
        ("export", "tiny@rl.last", out),
    ):
        result = call(*arguments, "--lab", trained.root)
        assert_one_line(result, "config.json", "'t5'", "no causal language model")
    assert not out.exists()


def test_no_run_is_made_with_a_damaged_template(lab: TinyLab) -> None:
    (lab.root / "model" / "chat_template.jinja").write_text("{{ nope.there }}")
    for arguments in (("run", lab.file, "--lab", lab.root), evaluation(lab)):
        assert_one_line(call(*arguments), "chat_template.jinja", "'nope' is undefined")
    assert not (lab.root / "runs").exists()


def listed(lab: TinyLab) -> list[dict[str, object]]:
    return answer(call("runs", "--lab", lab.root, "--json"))["result"]


def test_an_evaluation_that_failed_is_not_listed_as_finished(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise RuntimeError("out of memory")

        broken.setattr(evaluate_again, "measure_stored", fail)
        assert call(*evaluation(lab)).exit_code == 1
        (failed,) = listed(lab)
        assert (failed["status"], failed["score"]) == ("failed", None)
        assert "out of memory" in str(failed["message"])
    shown = call("compare", f"{failed['name']}@base", f"{failed['name']}@base", "--lab", lab.root)
    assert shown.exit_code == 2
    assert_one_line(call("resume", failed["name"], "--lab", lab.root), "assay eval")
    assert call(*evaluation(lab)).exit_code == 0
    (finished,) = listed(lab)
    assert (finished["id"], finished["status"]) == (failed["id"], "finished")


def test_a_model_of_the_hub_is_refused_before_its_weights_are_fetched(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(lab, "config.json", **T5)
    asked: list[list[str]] = []

    def snapshot(name: str, *, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(lab.root / "model")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    with pytest.raises(Exception, match="'t5'"):
        model_folder("hf:some/thing", Path())
    assert asked == [["config.json"]]
