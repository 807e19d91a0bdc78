"""What BFCL's own loader gives for a category, and how its runner judges texts, in processes of
their own."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.data.wheels import wheel_directory

PROGRAM = Path(__file__).with_name("upstream_dialogue.py")
LOADER = """
import json, os, sys
os.environ["BFCL_PROJECT_ROOT"] = sys.argv[2]
sys.path.insert(0, sys.argv[1])
from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry
for name in sys.argv[3:]:
    bare = "relevance" in name
    truths = [] if bare else [each["ground_truth"] for each in load_ground_truth_entry(name)]
    print(json.dumps([load_dataset_entry(name), truths]))
"""


@functools.cache
def loaded(*categories: str) -> dict[str, tuple[list[dict[str, Any]], list[Any]]]:
    """The entries of categories as a model is asked them, and their ground truths."""
    with TemporaryDirectory() as project:  # upstream writes its settings there
        command = [sys.executable, "-c", LOADER, str(wheel_directory("bfcl-eval")), project]
        done = subprocess.run([*command, *categories], check=True, capture_output=True, text=True)
    return dict(zip(categories, map(json.loads, done.stdout.splitlines()), strict=True))


def upstreams(cases: dict[str, list[Any]], scratch: Path) -> dict[str, list[Any]]:
    """How upstream's handler and runner judge texts and dialogues, see `upstream_dialogue`."""
    return asked(scratch, cases=cases)


def asked(scratch: Path, **request: Any) -> Any:
    """What `upstream_dialogue` answers to a request."""
    sent = {"wheel": str(wheel_directory("bfcl-eval")), "scratch": str(scratch), **request}
    command, text = [sys.executable, str(PROGRAM)], json.dumps(sent)
    done = subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
