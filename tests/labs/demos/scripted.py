"""A scripted frozen model for tests of the demos task."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.lab.models.metering import MeteredModel
from assay.rl.policy import Sampling
from tests.scripted_helper import ScriptedHelper, read_script


def scripted(folder: Path, rules: Sequence[Mapping[str, Any]]) -> MeteredModel:
    """A frozen model that answers by these rules."""
    file = folder / "frozen.jsonl"
    file.write_text("".join(json.dumps(rule) + "\n" for rule in rules), encoding="utf-8")
    return MeteredModel("frozen", ScriptedHelper("frozen", file, read_script(file)), Sampling(0.0))
