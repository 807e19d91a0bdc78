"""A program, run in a process of its own by the tests: upstream's own dialogues and verdicts.

Reads {category: [[entry index, answers], ...]} as JSON from standard input, plays each entry with
upstream's two loops ("tools": inference_multi_turn_FC, "text": inference_multi_turn_prompting of
its Qwen3 handler) and scores it with upstream's runner. Prints {category: [{loop: {"asked": [...],
"error": ...}}, ...]}, where `asked` has the messages and the names of the tools of every query.
Upstream evaluates calls: only harmless ones may be sent here. Arguments: wheel, scratch directory.
"""

import contextlib
import copy
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from importlib import import_module

ABSENT = {"overrides", "tenacity", "openai", "requests", "dotenv", "tqdm", "pandas"}
UNUSED = {
    "bfcl_eval.constants.model_config",
    "bfcl_eval.model_handler.parser.java_parser",
    "bfcl_eval.model_handler.parser.js_parser",
}


class Anything(types.ModuleType):
    """A module that has every name; what it has is never called here but as a decorator."""

    def __getattr__(self, name):
        if name == "EnforceOverrides":
            return type(name, (), {})
        return lambda function=None, *_, **__: function


class Stands(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports what upstream's handlers import and this test does not need."""

    def find_spec(self, name, path=None, target=None):
        if name in UNUSED or name.split(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        return Anything(spec.name)

    def exec_module(self, module):
        pass


def scripted(answers, asked, upstream):
    """A Qwen3 handler that says `answers`, then nothing, and notes what it was asked."""
    left = iter(answers)

    class Handler(upstream):
        def __init__(self):
            pass

        def answer(self, messages, functions):
            asked.append([copy.deepcopy(messages), [doc["name"] for doc in functions]])
            choice = types.SimpleNamespace(text=next(left, ""))
            usage = types.SimpleNamespace(prompt_tokens=0, completion_tokens=0)
            return types.SimpleNamespace(choices=[choice], usage=usage), 0.0

        def _query_prompting(self, data):
            return self.answer(data["message"], data["function"])

        def _query_FC(self, data):
            return self.answer(data["message"], data["tools"])

        def _pre_query_processing_FC(self, data, entry):
            return {"message": []}

        def _compile_tools(self, data, entry):
            return {**data, "tools": list(entry["function"])}

        def _add_execution_results_FC(self, data, results, response):
            data["message"] += [{"role": "tool", "content": result} for result in results]
            return data

        add_first_turn_message_FC = upstream.add_first_turn_message_prompting
        _add_next_turn_user_message_FC = upstream._add_next_turn_user_message_prompting
        _add_assistant_message_FC = upstream._add_assistant_message_prompting
        _parse_query_response_FC = upstream._parse_query_response_prompting

    handler = Handler()
    # A name of its own: upstream keeps the simulators of a name and an entry for ever.
    handler.model_name_underline_replaced = f"model_{id(asked)}"
    return handler


def main(wheel: str, scratch: str) -> None:
    """Play everything on standard input."""
    os.environ["BFCL_PROJECT_ROOT"] = scratch
    sys.meta_path.insert(0, Stands())
    sys.path.insert(0, wheel)
    utils = import_module("bfcl_eval.utils")
    runner = import_module("bfcl_eval.eval_checker.eval_runner")
    qwen = import_module("bfcl_eval.model_handler.local_inference.qwen_fc").QwenFCHandler
    loops = {"tools": "inference_multi_turn_FC", "text": "inference_multi_turn_prompting"}
    out, keep = {}, []
    for category, cases in json.load(sys.stdin).items():
        entries = utils.load_dataset_entry(category)
        truths = utils.load_ground_truth_entry(category)
        out[category] = []
        for index, answers in cases:
            played = {}
            for loop, method in loops.items():
                keep.append([])  # kept, so that no other has its id
                handler, entry = scripted(answers, keep[-1], qwen), copy.deepcopy(entries[index])
                with contextlib.redirect_stdout(sys.stderr):
                    said, _ = getattr(handler, method)(entry, False, True)
                    verdict = runner._evaluate_single_multi_turn_entry(
                        handler,
                        entry["id"],
                        said,
                        truths[index]["ground_truth"],
                        entry,
                        handler.model_name_underline_replaced,
                        category,
                    )
                error = "" if verdict["valid"] else verdict["error"]["error_type"]
                played[loop] = {"asked": keep[-1], "error": error}
            out[category].append(played)
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
