"""A program, run in a process of its own by the tests: upstream's own leaderboard files.

Reads {model: {category: [accuracy, entries]}} as JSON from standard input and writes upstream's CSV
files.
Arguments: the unpacked wheel, the folder to write into.
"""

import contextlib
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from upstream_dialogue import Stands


class AnyModel(dict):
    """Stands for the table of hosted models."""

    def __missing__(self, key):
        # Upstream takes every underscore of a folder's name for a slash.
        name = key.replace("/", "_")
        texts = {"display_name": name, "url": "", "org": "", "license": ""}
        return SimpleNamespace(**texts, input_price=None, output_price=None)


def main(wheel: str, folder: str) -> None:
    """Write the files for what stands on standard input."""
    os.environ["BFCL_PROJECT_ROOT"] = folder
    sys.meta_path.insert(0, Stands())
    sys.path.insert(0, wheel)
    helper = import_module("bfcl_eval.eval_checker.eval_runner_helper")
    vars(helper)["MODEL_CONFIG_MAPPING"] = AnyModel()
    board = {
        model: {
            name: {"accuracy": rate, "total_count": count} for name, (rate, count) in found.items()
        }
        for model, found in json.load(sys.stdin).items()
    }
    with contextlib.redirect_stdout(sys.stderr):
        helper.generate_leaderboard_csv(board, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
