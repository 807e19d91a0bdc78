"""Runs in ms-swift's environment: the configuration of a folder, as its command parses it."""

import contextlib
import json
import os
import sys
from dataclasses import fields

with contextlib.redirect_stdout(sys.stderr):
    from swift.arguments import RLHFArguments, SftArguments  # type: ignore[import-not-found]
    from swift.cli.main import parse_yaml_args  # type: ignore[import-not-found]
    from swift.utils import parse_args  # type: ignore[import-not-found]

    asked = json.load(sys.stdin)
    os.chdir(asked["folder"])
    argv = ["config.yaml"]
    parse_yaml_args(argv)
    kind = {"sft": SftArguments, "grpo": RLHFArguments}[asked["method"]]
    arguments, remaining = parse_args(kind, argv)
    assert not remaining, remaining
found = {each.name: getattr(arguments, each.name) for each in fields(kind)}
tables = [name for name, value in found.items() if str(value).startswith("{")]
found |= {name: json.loads(found[name]) for name in tables if isinstance(found[name], str)}
print(json.dumps(found, default=lambda value: str(value).removeprefix("torch.")))
