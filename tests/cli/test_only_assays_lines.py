"""On stderr stand Assay's lines alone: no library's warning, log or bar reaches the terminal."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import run_code
from tests.tiny_labs import make_lab

CHILD = '''
import json, sys, typing

class Watched:
    """Passes text of Assay on, through rich or not, and keeps who else wrote."""
    def __init__(self, inner): self.inner, self.foreign = inner, []
    def write(self, text):
        frame = sys._getframe(1)
        while "rich" in frame.f_code.co_filename.split("/"): frame = frame.f_back
        if "assay" not in frame.f_code.co_filename.split("/") and text.strip():
            self.foreign.append(f"{frame.f_code.co_filename}: {text}")
        return len(text)
    def __getattr__(self, name): return getattr(self.inner, name)

sys.stderr = Watched(sys.stderr)
from assay.cli.main import app
codes = []
for command in json.loads(sys.argv[1]):
    try:
        app(command, standalone_mode=True)
    except SystemExit as ended:
        codes.append(ended.code)
print("FOUND", json.dumps([codes, sys.stderr.foreign]))
'''
STAGES = """
[stage.adapter]
method = "sft"
data   = "sums"
steps  = 1
batch  = 2
adapt  = { kind = "lora", rank = 4, dropout = 0.1 }

[stage.rl]
method = "grpo"
data   = "sums"
steps  = 1
prompts  = 2
group    = 2
sampling = { max_tokens = 4 }
reward   = "accuracy"
adapt  = { kind = "lora", rank = 2 }

[evaluate.test]
benchmark = "math/gsm8k"
options = { path = "test.jsonl", format = "messages" }
role   = "report"
checkpoints = ["base", "rl.last"]
sampling = { max_tokens = 4 }
"""
COMMANDS = [
    ["check", "tiny.toml"],
    ["run", "tiny.toml"],
    ["compare", "tiny@base", "tiny@rl.last", "--on", "test"],
    ["export", "tiny@adapter.last", "out"],
]


@pytest.mark.slow
def test_no_verb_lets_a_library_write_on_the_terminal(tmp_path: Path) -> None:
    make_lab(tmp_path, until="[stage.sft]", tables=STAGES)
    cache = {"ASSAY_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    done = run_code(CHILD, json.dumps(COMMANDS), cwd=tmp_path, **cache)
    codes, foreign = json.loads(done.stdout.rpartition("FOUND ")[2])
    assert foreign == []
    assert done.stderr == "", "something writes past Python"
    assert codes == [0] * len(COMMANDS)
