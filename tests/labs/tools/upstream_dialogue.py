"""A program, run in a process of its own by the tests: upstream's own reading and its verdicts.

Reads {"wheel": ..., "scratch": ..., "cases": {category: [[entry index, text or texts], ...]}} as
JSON from standard input. A text is judged as the answer to an entry of one question by upstream's
Qwen3 handler and its runner, and is answered by the type of its error, "" where it is right. Texts
are the messages of a dialogue, which is played with upstream's two loops ("tools":
inference_multi_turn_FC, "text": inference_multi_turn_prompting) and answered by {loop: {"asked":
[...], "error": ...}}, where `asked` has the messages and the names of the tools of every query.

Reads {"wheel": ..., "scratch": ..., "results": FOLDER} instead to evaluate result files as
`bfcl evaluate --partial-eval` does, and answers {category: [right, answered]}.

With a wheel, packages that upstream imports and these cases do not need are stood in for; without,
upstream has to be installed. Upstream evaluates calls: only harmless ones may be sent here.
"""

import contextlib
import copy
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import sys
import types
from importlib import import_module

MODEL = "Qwen/Qwen3-0.6B-FC"
ABSENT = {"overrides", "tenacity", "openai", "requests", "dotenv", "tqdm", "pandas"}
UNUSED = {
    "bfcl_eval.constants.model_config",
    "bfcl_eval.model_handler.parser.java_parser",
    "bfcl_eval.model_handler.parser.js_parser",
}
TEXTS = ("display_name", "url", "org", "license")
RAISED = "upstream raises"


class AnyModel(dict):
    """Upstream's table of models, of which its checker reads a flag, and its tables texts."""

    def __contains__(self, key):
        return True

    def __missing__(self, key):
        texts = dict.fromkeys(TEXTS, key)
        return types.SimpleNamespace(
            underscore_to_dot=False, input_price=None, output_price=None, **texts
        )


class Anything(types.ModuleType):
    """A module that has every name; what it has is never called here but as a decorator."""

    MODEL_CONFIG_MAPPING = AnyModel()

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


def response(text):
    """What a server answers to a request of a completion."""
    usage = types.SimpleNamespace(prompt_tokens=0, completion_tokens=0)
    return types.SimpleNamespace(choices=[types.SimpleNamespace(text=text)], usage=usage)


def scripted(handler, answers, asked):
    """The handler says `answers`, then nothing, and notes what it was asked."""
    left = iter(answers)

    def answer(messages, functions):
        asked.append([copy.deepcopy(messages), [doc["name"] for doc in functions]])
        return response(next(left, "")), 0.0

    def with_results(data, results, _):
        data["message"] += [{"role": "tool", "content": result} for result in results]
        return data

    handler._query_prompting = lambda data: answer(data["message"], data["function"])
    handler._query_FC = lambda data: answer(data["message"], data["tools"])
    handler._pre_query_processing_FC = lambda data, entry: {"message": []}
    handler._compile_tools = lambda data, entry: {**data, "tools": list(entry["function"])}
    handler._add_execution_results_FC = with_results
    handler.add_first_turn_message_FC = handler.add_first_turn_message_prompting
    handler._add_next_turn_user_message_FC = handler._add_next_turn_user_message_prompting
    handler._add_assistant_message_FC = handler._add_assistant_message_prompting
    handler._parse_query_response_FC = handler._parse_query_response_prompting
    # A name of its own: upstream keeps the simulators of a name and an entry for ever.
    handler.model_name_underline_replaced = f"model_{id(asked)}"


def dialogues(runner, handler, category, entry, truth, answers, keep):
    """What both loops ask, and the type of the error of each."""
    loops = {"tools": "inference_multi_turn_FC", "text": "inference_multi_turn_prompting"}
    played = {}
    for loop, method in loops.items():
        keep.append([])  # kept, so that no other has its id
        scripted(handler, answers, keep[-1])
        copied, name = copy.deepcopy(entry), handler.model_name_underline_replaced
        said, _ = getattr(handler, method)(copied, False, True)
        verdict = runner._evaluate_single_multi_turn_entry(
            handler, entry["id"], said, truth["ground_truth"], copied, name, category
        )
        error = "" if verdict["valid"] else verdict["error"]["error_type"]
        played[loop] = {"asked": keep[-1], "error": error}
    return played


def single(runner, handler, category, entry, truth, text):
    """The type of the error of one answer."""
    enums = import_module("bfcl_eval.constants.enums")
    said = handler._parse_query_response_prompting(response(text))["model_responses"]
    entry, given = copy.deepcopy(entry), (said, entry, MODEL, category)
    if truth is None:
        verdict = runner._evaluate_single_relevance_entry(handler, entry["id"], *given)
        return "" if verdict["valid"] else verdict["error_type"]
    of = enums.Language.PYTHON, enums.ReturnFormat.PYTHON
    try:
        verdict = runner._evaluate_single_ast_entry(
            handler, entry["id"], said, truth["ground_truth"], entry, MODEL, category, *of
        )
    except Exception:  # upstream has no verdict, and stops
        return RAISED
    return "" if verdict["valid"] else verdict["error_type"]


def evaluated(runner, handler, results):
    """How many answers of each category's result file are right, by upstream's own command."""
    vars(runner)["get_handler"] = lambda name: handler
    names = [file.name for file in results.rglob("*_result.json")]
    categories = [name[len("BFCL_v4_") : -len("_result.json")] for name in names]
    runner.main([MODEL], categories, results, results, partial_eval=True)
    counts = {}
    for name in categories:
        (file,) = results.rglob(f"BFCL_v4_{name}_score.json")
        head = json.loads(file.read_text().split("\n")[0])
        counts[name] = [head["correct_count"], head["total_count"]]
    return counts


def main(wheel, scratch, cases=(), results=None):
    """Answer all cases."""
    os.environ["BFCL_PROJECT_ROOT"] = scratch
    if wheel:
        sys.meta_path.insert(0, Stands())
        sys.path.insert(0, wheel)
    utils = import_module("bfcl_eval.utils")
    runner = import_module("bfcl_eval.eval_checker.eval_runner")
    qwen = import_module("bfcl_eval.model_handler.local_inference.qwen_fc").QwenFCHandler
    handler = qwen.__new__(qwen) if wheel else runner.get_handler(MODEL)
    assert type(handler) is qwen
    if results is not None:
        return evaluated(runner, handler, pathlib.Path(results))
    out, keep = {}, []
    for category, asked in dict(cases).items():
        several = "multi_turn" in category
        entries = utils.load_dataset_entry(category, include_language_specific_hint=several)
        bare = "relevance" in category
        truths = [None] * len(entries) if bare else utils.load_ground_truth_entry(category)
        out[category] = [
            dialogues(runner, handler, category, entries[i], truths[i], said, keep)
            if several
            else single(runner, handler, category, entries[i], truths[i], said)
            for i, said in asked
        ]
    return out


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = main(**json.load(sys.stdin))
    json.dump(found, sys.stdout)
