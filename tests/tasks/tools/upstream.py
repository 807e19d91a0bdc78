"""What BFCL's own loader gives for a category, and how its runner judges texts, in processes of
their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from assay.data.wheels import wheel_directory

PROGRAM = Path(__file__).with_name("upstream_dialogue.py")
LOADER = """
import json, os, sys
os.environ["BFCL_PROJECT_ROOT"] = sys.argv[2]
sys.path.insert(0, sys.argv[1])
import bfcl_eval.utils
print(json.dumps(getattr(bfcl_eval.utils, sys.argv[3])(sys.argv[4])))
"""


def loaded_entries(category: str, project: Path) -> list[dict[str, Any]]:
    """The entries as a model is asked them; upstream writes its settings under `project`."""
    return _load("load_dataset_entry", category, project)


def loaded_truths(category: str, project: Path) -> list[Any]:
    """The ground truths."""
    return [one["ground_truth"] for one in _load("load_ground_truth_entry", category, project)]


def _load(function: str, category: str, project: Path) -> Any:
    command = [sys.executable, "-c", LOADER, str(wheel_directory("bfcl-eval")), str(project)]
    done = subprocess.run(
        [*command, function, category], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def upstreams(cases: dict[str, list[Any]], scratch: Path) -> dict[str, list[Any]]:
    """How upstream's handler and runner judge texts and dialogues, see `upstream_dialogue`."""
    sent = {"wheel": str(wheel_directory("bfcl-eval")), "scratch": str(scratch), "cases": cases}
    command, text = [sys.executable, str(PROGRAM)], json.dumps(sent)
    done = subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
