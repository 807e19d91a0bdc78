"""What a difference between the logs of another tool counts as: tested, confound, warning, note."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.compare.arm import ReadOptions
from assay.compare.compare_names import compare_names
from assay.compare.table import ComparisonTable
from assay.errors import InputError
from tests.compare.test_judged_table import control_of
from tests.data.results.produced import FOLDER, copied

STRICT = "exact_match,strict-match"
Change = Callable[[dict[str, Any]], Any]


def lm_eval(
    folder: Path, name: str, about: Change = dict, line: Change = dict, **arguments: Any
) -> str:
    """The produced log of `sums` as if the model NAME had been run with these arguments."""
    place = copied("lm_eval/sums-small", folder / name)
    (log,), (samples,) = place.glob("results_*.json"), place.glob("samples_sums_2*.jsonl")
    found = json.loads(log.read_text())
    found["config"]["model_args"] = {"pretrained": name, **arguments}
    found["model_name"] = name
    del found["task_hashes"]  # of the rows as they were written
    about(found)
    log.write_text(json.dumps(found))
    rows = [json.loads(text) for text in samples.read_text().splitlines()]
    for row in rows:
        line(row)
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(samples)


def compared(*files: str, metric: str = STRICT, allow: tuple[str, ...] = ()) -> ComparisonTable:
    return compare_names(Path("no-lab"), files, files=ReadOptions(metric=metric), allow=allow)


def verdict(table: ComparisonTable) -> str:
    return control_of(table.lines[1]).comparison.verdict


def kinds(table: ComparisonTable) -> dict[str, str]:
    return {difference.path: difference.kind for difference in table.differences}


def config(**values: Any) -> dict[str, Change]:
    return {"about": lambda log: log["config"].update(values)}


def template(name: str) -> dict[str, Change]:
    """A chat template of its own, and so prompts of its own."""
    return {
        "about": lambda log: log.update(chat_template_sha=name),
        "line": lambda row: row.update(prompt_hash=name),
    }


def shots(log: dict[str, Any]) -> None:
    log["n-shot"]["sums"] = 2


def seeded(log: dict[str, Any]) -> None:
    shots(log)
    log["config"]["fewshot_seed"] = 99


def ended(row: dict[str, Any]) -> None:
    row["arguments"]["gen_args_0"]["arg_1"]["until"] = ["two lines"]


SEEDS = {"random_seed": 7, "numpy_seed": 8, "torch_seed": 9, "fewshot_seed": 10}
FLOAT = config(model_dtype="torch.float32")
TEMPLATE = "evaluation.sums.rendering.chat_template_sha"
TURNS = "evaluation.sums.rendering.fewshot_as_multiturn"
PROMPTS, SEED = "evaluation.sums.prompts_sha256", "random_seeds.fewshot_seed"


@pytest.mark.parametrize(
    ("control", "other", "kind_of"),
    [
        ({}, {"load_in_4bit": True}, {"model_args.load_in_4bit": "confound"}),
        ({}, {"house_option": "x"}, {"model_args.house_option": "confound"}),
        ({}, {"device": "cpu"}, {"machine.device": "warning"}),
        ({}, {"device": "cuda:3"}, {}),
        # A type that was asked for and found anyway.
        (FLOAT, {**FLOAT, "dtype": "float32"}, {"model_args.dtype": "note"}),
        (FLOAT, config(model_dtype="torch.bfloat16"), {"machine.dtype": "warning"}),
        ({}, config(limit=1000), {"dataset.limit": "note"}),
        ({}, config(**SEEDS), {f"random_seeds.{seed}": "note" for seed in SEEDS}),
        # A seed that chose other worked examples, or none.
        ({"about": shots}, {"about": seeded}, {SEED: "note"}),
        (
            {"about": shots},
            {"about": seeded, "line": template("x")["line"]},
            {SEED: "confound", PROMPTS: "confound"},
        ),
        (template("base"), template("tuned"), {TEMPLATE: "tested", PROMPTS: "follows"}),
        ({}, template("tuned"), {TEMPLATE: "confound", TURNS: "confound", PROMPTS: "follows"}),
        # What the rows were made with, whatever the results file says.
        ({}, {"line": ended}, {"evaluation.sums.sampling.until": "confound"}),
    ],
)
def test_every_setting_of_lm_eval_counts_as_what_it_is(
    tmp_path: Path, control: dict, other: dict, kind_of: dict[str, str]
):
    files = lm_eval(tmp_path, "base", **control), lm_eval(tmp_path, "tuned", **other)
    table = compared(*files)
    assert kinds(table) == {"base_weights.pretrained": "tested"} | kind_of
    confounds = tuple(path for path, kind in kind_of.items() if kind == "confound")
    assert (verdict(table) == "not comparable") is bool(confounds)
    assert verdict(compared(*files, allow=confounds)) != "not comparable"


def test_documents_in_another_order_ask_something_else(tmp_path: Path):
    base = lm_eval(tmp_path, "base")
    shuffled = lm_eval(
        tmp_path, "tuned", line=lambda row: row.update(doc_id=(row["doc_id"] * 5 + 3) % 12)
    )
    with pytest.raises(InputError, match="ask something else"):
        compared(base, shuffled)


def inspect(folder: Path, name: str, change: Change = dict) -> str:
    """The produced log of inspect-ai as if it were of the model NAME."""
    log = json.loads((FOLDER / "inspect_ai/large.json").read_text())
    log["eval"]["model"] = name
    change(log)
    file = folder / f"{re.sub('/', '-', name)}.json"
    file.write_text(json.dumps(log))
    return str(file)


def evaluated(**values: Any) -> Change:
    return lambda log: log["eval"].update(values)


@pytest.mark.parametrize(
    ("change", "path", "kind"),
    [
        (evaluated(model_args={"load_in_4bit": True}), "model_args.load_in_4bit", "confound"),
        (evaluated(model_args={"device": "cpu"}), "machine.device", "warning"),
        (evaluated(model_args={"revision": "v2"}), "base_weights.revision", "tested"),
        (
            evaluated(model_generate_config={"temperature": 0.7}),
            "evaluation.sums.sampling.temperature",
            "confound",
        ),
        (evaluated(model_roles={"grader": "g"}), "evaluation.sums.model_roles.grader", "confound"),
        (evaluated(model_base_url="http://there"), "machine.base_url", "note"),
        (evaluated(dataset={"shuffled": True}), "dataset.shuffled", "note"),
    ],
)
def test_every_setting_of_inspect_ai_counts_as_what_it_is(
    tmp_path: Path, change: Change, path: str, kind: str
):
    table = compared(inspect(tmp_path, "a"), inspect(tmp_path, "b", change), metric="match")
    assert kinds(table)[path] == kind
    assert (verdict(table) == "not comparable") is (kind == "confound")


def test_a_model_is_one_in_two_engines_and_providers_are_part_of_a_models_name(tmp_path: Path):
    local = compared(inspect(tmp_path, "hf/q"), inspect(tmp_path, "vllm/q"), metric="match")
    assert kinds(local) == {"engine.name": "confound"}
    remote = compared(inspect(tmp_path, "one/q"), inspect(tmp_path, "hf/q"), metric="match")
    assert kinds(remote) == {"base_weights.model": "tested"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"pretrained": "org/tuned", "gguf_file": "tuned.gguf"},
        {"pretrained": "org/tuned-AWQ"},
        {"pretrained": "org/tuned", "revision": "gptq-4bit-32g"},
        {"pretrained": "org/tuned", "quantization": "fp8"},
    ],
    ids=lambda given: ",".join(map(str, given.values())),
)
def test_a_quantised_model_is_never_compared_in_silence_with_one_that_is_not(
    tmp_path: Path, arguments: dict
):
    files = lm_eval(tmp_path, "base"), lm_eval(tmp_path, "tuned", **arguments)
    table = compared(*files)
    assert verdict(table) == "not comparable"
    confounds = {path for path, kind in kinds(table).items() if kind == "confound"}
    assert {path.partition(".")[0] for path in confounds} == {"model_args"}


def codes(table: ComparisonTable) -> dict[str, str]:
    return {finding.code: finding.severity for finding in table.findings}


def test_a_file_that_contradicts_its_rows_has_no_verdict_and_shows_the_rest(tmp_path: Path):
    def wrong(log: dict[str, Any]) -> None:
        log["results"]["sums"][STRICT] = 0.99

    table = compared(lm_eval(tmp_path, "base"), lm_eval(tmp_path, "tuned", wrong, dtype="x"))
    assert verdict(table) == "not comparable" and table.contradicted
    assert codes(table)["contradicts_itself"] == "error"
    assert kinds(table)[f"results.sums.{STRICT}"] == "confound"
    assert kinds(table)["model_args.dtype"] == "confound"
    turned = compared(lm_eval(tmp_path, "wrong", wrong), lm_eval(tmp_path, "again"))
    assert verdict(turned) == "not comparable" and turned.contradicted


def scored(folder: Path, metric: str, one: list[float], other: list[float], text: str = "") -> str:
    """A table of two runs that wrote the same answers, or answers of their own."""
    rows = [
        {"item": f"q{n}", "run": run, metric: score, "output": f"the {n % 2}{text and run}"}
        for run, scores in (("base", one), ("tuned", other))
        for n, score in enumerate(scores)
    ]
    file = folder / "scores.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


LOW, HIGH = [0.0] * 29 + [1.0], [1.0] * 30


def test_equal_answers_with_other_scores_are_an_error_and_no_verdict(tmp_path: Path):
    table = compared(scored(tmp_path, "score", LOW, HIGH), metric="score")
    assert verdict(table) == "not comparable" and table.contradicted
    assert codes(table) == {
        "settings_unknown": "warning",
        "checker_unknown": "warning",
        "scored_apart": "error",
    }
    (found,) = [each for each in table.findings if each.code == "scored_apart"]
    assert found.values["item"] == "q0" and found.values["count"] == 29
    once = compared(scored(tmp_path, "score", HIGH, [*HIGH[:-1], 0.0]), metric="score")
    assert once.contradicted, "one is enough"


def test_answers_of_their_own_and_times_may_have_scores_of_their_own(tmp_path: Path):
    own = compared(scored(tmp_path, "score", LOW, HIGH, "own"), metric="score")
    assert verdict(own) == "better" and not own.contradicted
    fast = compared(scored(tmp_path, "latency", LOW, HIGH), metric="latency")
    assert verdict(fast) == "worse" and not fast.contradicted
    noise = [score - 1e-5 for score in HIGH]
    assert not compared(scored(tmp_path, "reward", HIGH, noise), metric="reward").contradicted


@pytest.mark.parametrize(("metric", "severity"), [("match", "error"), ("graded", "warning")])
def test_what_a_model_judged_is_warned_of_and_what_code_judged_is_an_error(
    tmp_path: Path, metric: str, severity: str
):
    def regraded(wrong: bool) -> Change:
        def change(log: dict[str, Any]) -> None:
            for sample in log["samples"]:
                sample["output"] = {"choices": [{"message": {"content": "the same"}}]}
                sample["scores"] = {metric: {"value": "I" if wrong else "C"}}
            log["results"]["scores"] = []

        return change

    files = inspect(tmp_path, "a", regraded(True)), inspect(tmp_path, "b", regraded(False))
    table = compared(*files, metric=metric)
    assert codes(table)["scored_apart"] == severity
    assert table.contradicted is (severity == "error")
