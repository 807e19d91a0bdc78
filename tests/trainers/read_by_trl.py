"""Runs in TRL's environment: the configuration of a folder, as TRL's own script parses it."""

import contextlib
import json
import os
import sys

from trl.scripts import grpo, sft  # type: ignore[import-not-found]

asked = json.load(sys.stdin)
os.chdir(asked["folder"])
parser = {"sft": sft, "grpo": grpo}[asked["method"]].make_parser()
with contextlib.redirect_stdout(sys.stderr):
    parsed = parser.parse_args_and_config(["--config", "config.yaml", "--use_cpu", "true"])
    found = {name: value for each in parsed for name, value in vars(each).items()}
print(json.dumps(found, default=lambda value: getattr(value, "__dict__", str(value))))
