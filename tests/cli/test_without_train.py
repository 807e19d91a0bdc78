"""Without the extra `train` what reads and judges works; the rest says what to install."""

import json
import re
import signal
import subprocess
import sys
import tomllib
from html import unescape
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import HTTPCookieProcessor, build_opener

from assay.cli.output import INHERITED, train_packages
from tests.cli.conftest import TinyLab, run_code

ROOT = Path(__file__).parents[2]
LIGHT = {
    "runs": ["runs"],
    "report": ["report", "tiny"],
    "compare": ["compare", "tiny@base", "tiny@rl.last", "--on", "test"],
    "compare files": ["compare", "base.csv", "tuned.csv"],
    "compare trained weights": ["compare", "tiny@sft.step-000008", "tiny@sft.last", "--on", "dev"],
    "audit": ["audit", "reported.csv"],
    "plan": ["plan", "tiny@base", "tiny@rl.last", "--on", "test"],
    "convert": ["convert", "sums.jsonl", "out.jsonl", "--to", "trl"],
    "convert to parquet": ["convert", "sums.jsonl", "out.parquet", "--to", "verl"],
    "verify": ["runs", "verify", "tiny"],
    "log": ["runs", "log", "tiny"],
    "costs": ["costs", "tiny"],
}
HEAVY = {
    "run": ["run", "tiny.toml", "--new"],
    "check": ["check", "tiny.toml"],
    "eval": ["eval", "path:model", "--benchmark", "math/gsm8k"],
    "resume": ["resume", "tiny"],
    "serve": ["serve", "tiny@rl.last"],
    "export": ["export", "tiny@rl.last", "exported"],
    "convert for": ["convert", "sums.jsonl", "o.jsonl", "--to", "trl", "--for", "path:model"],
}
BLOCKED = """
import json, os, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(sys.argv[2].split()):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
if sys.argv[3:]:
    from assay.cli.main import app
    app(sys.argv[3:])
from typer.testing import CliRunner
from assay.cli.main import app
os.chdir(sys.argv[1])
for name, arguments in json.load(sys.stdin).items():
    done = CliRunner().invoke(app, arguments)
    print(json.dumps([name, done.exit_code, done.stderr]))
"""


def invoked(folder: Path, commands: dict[str, list[str]]) -> dict[str, tuple[int, str]]:
    """Exit code and stderr of each command, in a process that cannot import what trains."""
    done = run_code(BLOCKED, folder, " ".join(train_packages()), given=json.dumps(commands))
    assert done.returncode == 0, done.stderr
    return {name: (code, err) for name, code, err in map(json.loads, done.stdout.splitlines())}


def test_what_reads_and_judges_works_without_the_packages_that_train(trained: TinyLab):
    rows = [f"q{i},{i % 3 > 0:d}" for i in range(30)]
    (trained.root / "base.csv").write_text("\n".join(["item,score", *rows]))
    (trained.root / "tuned.csv").write_text("\n".join(["item,score", *rows[3:], *rows[:3]]))
    (trained.root / "reported.csv").write_text("run,benchmark,score\nbase,gsm8k,50.0\n")
    found = invoked(trained.root, LIGHT)
    assert found.keys() == LIGHT.keys()
    wrong = {name: said for name, said in found.items() if "train" in said[1] or said[0] > 0}
    assert wrong == {}


def test_the_window_shows_a_run_without_the_packages_that_train(trained: TinyLab) -> None:
    command = [sys.executable, "-c", BLOCKED, "-", " ".join(train_packages())]
    command += ["view", str(trained.root), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as window:
        assert window.stderr
        address = next(line.split()[-1] for line in window.stderr if "http" in line)
        client, seen, pages = build_opener(HTTPCookieProcessor()), set[str](), [address]
        while pages:
            page = pages.pop()
            text = client.open(page).read().decode()
            links = {urljoin(page, unescape(link)) for link in re.findall(r' href="([^"#]+)', text)}
            kinds = {link.partition("?")[0]: link for link in links if "/lab/" in link}
            pages += [link for kind, link in kinds.items() if kind not in seen]
            seen |= kinds.keys()
        window.send_signal(signal.SIGINT)
    wanted = ("/tiny/", "/samples", "/answers", "/show", "/compare", "/progress", "/costs")
    assert [each for each in wanted if not any(each in kind for kind in seen)] == []


def test_what_trains_says_in_one_line_what_to_install_and_changes_nothing(trained: TinyLab):
    def held() -> dict[Path, bytes]:
        files = trained.root.rglob("*")
        return {each: each.read_bytes() for each in files if each.is_file()}

    before = held()
    told = invoked(trained.root, HEAVY | {"taken": ["run", "tiny.toml"]})
    # What needs no training is told before: that the name has runs.
    assert "a run named 'tiny' exists" in told.pop("taken")[1]
    for code, said in told.values():
        assert code == 2 and said.count("\n") == 1, said
        assert said.endswith("the extra 'train' (pip install 'assay-lab[train]')\n")
    assert held() == before


def test_the_names_that_are_known_to_train_are_those_of_the_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    train = {
        t.partition(">")[0].partition("=")[0] for t in project["optional-dependencies"]["train"]
    }
    assert {name.replace("-", "_") for name in train} | {*INHERITED} == train_packages()
    assert not [text for text in project["dependencies"] if text.startswith(("torch", "transf"))]


def test_a_typo_is_told_before_torch_is_imported(tmp_path: Path) -> None:
    """In half a second, where torch and what stands on it take some."""
    file = tmp_path / "e.toml"
    file.write_text('name = "e"\nmodl = "path:x"\n')
    code = "import sys; from assay.cli.main import app\ntry: app(sys.argv[1:])\n"
    code += "finally: print(sorted({'torch', 'numpy', 'transformers'} & {*sys.modules}))"
    for verb in ("check", "run"):
        done = run_code(code, verb, file)
        assert done.returncode == 2 and "e.toml:2: modl: unknown key" in done.stderr
        assert done.stdout.strip() == "[]"
