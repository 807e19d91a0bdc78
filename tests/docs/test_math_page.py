"""The examples of math.md: its filter and mixture keep what they say, its benchmarks are there."""

import json
import tomllib
from pathlib import Path

from assay.data.renderings.rendering import Renderer
from assay.experiment.read_file import read_experiment
from assay.experiment.tables import EvaluateSpec
from assay.lab.data.prepare import prepare_set
from assay.lab.models.language_encoder import LanguageEncoder
from assay.labs.math.task import PUBLISHED
from assay.tasks.task import BenchmarkOptions, benchmark, task
from tests.data.chat import tokenizer
from tests.docs.pages import DOCS, blocks

DATA, EVALUATIONS = blocks("math.md", "toml")
MATH = task("math")


def test_the_pages_filter_drops_easy_problems_and_long_prompts(tmp_path: Path) -> None:
    """Four of five hard problems are short enough; the mixture has a quarter of easy ones."""
    given = [("hard", 1)] * 4 + [("hard", 400)] + [("easy", 1)] * 4 + [("medium", 1)] * 2
    lines = (
        json.dumps({"prompt": f"{n}" + " 1" * words, "answer": "1", "meta": {"difficulty": level}})
        for n, (level, words) in enumerate(given)
    )
    (tmp_path / "math3k_rl_prompt.jsonl").write_text("".join(line + "\n" for line in lines))
    (tmp_path / "x.toml").write_text('name = "x"\ntask = "math"\n' + DATA)
    experiment = read_experiment(tmp_path / "x.toml")
    encoder = LanguageEncoder(Renderer(tokenizer("chatml"), "hermes"), frozenset())
    made = {}
    mixed = prepare_set(experiment, "mixed", MATH, lambda _: encoder, tmp_path, made)
    assert [row.extra["difficulty"] for row in made["hard"].train] == ["hard"] * 4 + ["medium"] * 2
    assert sorted(map(len, made["hard"].dropped.values())) == [1, 4]
    assert mixed.order is not None and mixed.order.count == 8
    levels = [mixed.train[mixed.order.visit(1, n)[1]].extra["level"] for n in range(8)]
    assert levels[:2] == [1, 1] and levels == sorted(levels) and 1 not in levels[2:]


def test_the_pages_benchmarks_exist_with_their_usual_data_sets(tmp_path: Path) -> None:
    tables = tomllib.loads(EVALUATIONS)["evaluate"]
    union = EvaluateSpec.model_validate(tables["amc23"])
    rows = [{"source": source, "prompt": "?", "answer": 1} for source in ("AMC23", "GSM8K")]
    (tmp_path / "RL.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = benchmark(MATH, union.benchmark or "", BenchmarkOptions(union.options, tmp_path))
    assert [item.extra["source"] for item in made.items] == ["AMC23"]
    hub = PUBLISHED[tables["math500"]["benchmark"]].hub
    assert hub is not None and tables["math500"]["options"]["hf"] == hub.name
    text = (DOCS / "math.md").read_text(encoding="utf-8")
    for name, usual in PUBLISHED.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"| `{usual.format}` |" in line
        parts = (usual.hub.name, usual.hub.config, usual.hub.split) if usual.hub else ()
        assert all(f"`{part}`" in line for part in parts if part)
