"""A program, run in a process of its own by the tests: what upstream's own loader and checker say.

Reads {category: [[entry index, decoded calls], ...]} as JSON from standard input, prints
{category: [[valid, error type], ...]}. Arguments: the unpacked wheel, a scratch directory.
"""

import json
import os
import sys
import types


class AnyModel(dict):
    """Stands for the table of hosted models, whose import needs a hundred packages."""

    def __missing__(self, key):
        return types.SimpleNamespace(underscore_to_dot=False)


def main(wheel: str, scratch: str) -> None:
    """Check everything on standard input."""
    os.environ["BFCL_PROJECT_ROOT"] = scratch
    table = types.ModuleType("bfcl_eval.constants.model_config")
    table.__dict__["MODEL_CONFIG_MAPPING"] = AnyModel()
    sys.modules[table.__name__] = table
    sys.path.insert(0, wheel)
    from importlib import import_module

    utils = import_module("bfcl_eval.utils")
    checker = import_module("bfcl_eval.eval_checker.ast_eval.ast_checker").ast_checker
    python = import_module("bfcl_eval.constants.enums").Language.PYTHON
    verdicts = {}
    for category, cases in json.load(sys.stdin).items():
        entries = utils.load_dataset_entry(category, include_language_specific_hint=False)
        truths = utils.load_ground_truth_entry(category)
        verdicts[category] = []
        for index, calls in cases:
            functions, truth = entries[index]["function"], truths[index]["ground_truth"]
            verdict = checker(functions, calls, truth, python, category, "a-model")
            verdicts[category].append(
                [verdict["valid"], "" if verdict["valid"] else verdict["error_type"]]
            )
    json.dump(verdicts, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
