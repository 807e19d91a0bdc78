"""The benchmarks of math.md are there."""

import json
import tomllib
from pathlib import Path

from assay.experiment.tables import EvaluateSpec
from assay.labs.math.task import PUBLISHED
from assay.tasks.task import BenchmarkOptions, benchmark, task
from tests.docs.pages import DOCS, blocks

(EVALUATIONS,) = blocks("math.md", "toml")
MATH = task("math")


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
