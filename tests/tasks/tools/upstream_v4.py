"""A program, run in the environment of the whole bfcl-eval: what its categories of V4 come to.

Reads one request as JSON from standard input and prints one line of JSON, the answers by key:

  formats    {"texts": {id: text}}: the prompts of these entries of format_sensitivity as upstream's
             handler makes them, each entry's error, and the header of the score file
  answers    [[category, "fc" or "prompting", [text, ...]], ...]: the errors of a category's first
             entries, judged by upstream's runner after its Qwen3 handler has read them
  memories   {category: {scenario: [[answer, ...], ...]}}: for each conversation what the model is
             shown, and the errors of the questions
"""

import contextlib
import copy
import importlib
import json
import os
import sys
import types
from pathlib import Path


def handler(kind, answers=(), asked=None):
    """A handler of upstream's that says `answers`, then nothing."""
    module, name = {"fc": ("qwen_fc", "QwenFCHandler"), "prompting": ("qwen", "QwenHandler")}[kind]
    base = getattr(load(f"model_handler.local_inference.{module}"), name)
    left = iter(answers)

    asked = [] if asked is None else asked

    def query(data):
        asked.append([[m["role"], m["content"]] for m in copy.deepcopy(data["message"])])
        return reply(next(left, "")), 0.0

    made = object.__new__(base)
    # A name of its own: upstream keeps the simulators of a name and an entry for ever.
    made.model_name_underline_replaced = f"model_{id(made)}"
    made._query_prompting = query
    KEPT.append(made)
    return made


def reply(text):
    """What the server of a model says."""
    usage = types.SimpleNamespace(prompt_tokens=0, completion_tokens=0)
    return types.SimpleNamespace(choices=[types.SimpleNamespace(text=text)], usage=usage)


MODEL = "Qwen_Qwen3-0.6B"
"""A name that upstream knows; it changes no name of a function."""
KEPT = []
"""Handlers, so that no other has the id of one."""


def load(name):
    return importlib.import_module(f"bfcl_eval.{name}")


def read(reader, text):
    """The text as upstream's handler hands it on."""
    return reader._parse_query_response_prompting(reply(text))["model_responses"]


def errors_in(file, ids):
    """The header of a score file, and each entry's error."""
    header, *wrong = [json.loads(line) for line in file.read_text().splitlines()]
    found = {each["id"]: each["error_type"] for each in wrong}
    return header, {id_: found.get(id_, "") for id_ in ids}


def formats(texts, scratch):
    runner, utils = load("eval_checker.eval_runner"), load("utils")
    reader, category = handler("prompting"), "format_sensitivity"
    asked = {}
    for entry in utils.load_dataset_entry(category):
        if entry["id"] in texts:
            reader._pre_query_processing_prompting(entry)
            asked[entry["id"]] = entry["question"][0]
    results = [{"id": id_, "result": read(reader, text)} for id_, text in texts.items()]
    table = {}
    runner.evaluate_task(category, None, scratch, results, MODEL, reader, table, allow_missing=True)
    file = scratch / MODEL / category / f"BFCL_v4_{category}_score.json"
    header, errors = errors_in(file, texts)
    return {"asked": asked, "errors": errors, "header": header}


def answers(category, kind, texts, scratch):
    runner, utils = load("eval_checker.eval_runner"), load("utils")
    reader = handler(kind)
    ids = [entry["id"] for entry in utils.load_dataset_entry(category)][: len(texts)]
    results = [{"id": i, "result": read(reader, t)} for i, t in zip(ids, texts, strict=False)]
    runner.evaluate_task(category, None, scratch, results, MODEL, reader, {}, allow_missing=True)
    file = scratch / MODEL / "non_live" / f"BFCL_v4_{category}_score.json"
    return list(errors_in(file, ids)[1].values())


def memories(category, scripts, scratch):
    runner, utils = load("eval_checker.eval_runner"), load("utils")
    entries = utils.load_dataset_entry(category)
    entries = utils.populate_initial_settings_for_memory_test_cases(entries, scratch)
    truths = [each["ground_truth"] for each in utils.load_ground_truth_entry(category)]
    ids = [e["id"] for e in utils.load_dataset_entry(category, include_prereq=False)]
    gold = dict(zip(ids, truths, strict=False))
    found = {}
    for scenario, said in scripts.items():
        ours = [entry for entry in entries if entry["scenario"] == scenario]
        found[scenario] = {"asked": [], "errors": {}}
        for entry, messages in zip(ours, said, strict=False):
            asked = []
            player = handler("fc", messages, asked)
            result, _ = player.inference_multi_turn_prompting(entry, False, True)
            found[scenario]["asked"].append(asked)
            if entry["id"] in gold:
                verdict = runner._evaluate_single_agentic_entry(
                    player, entry["id"], result, gold[entry["id"]], entry, MODEL, category
                )
                error = "" if verdict["valid"] else verdict["error"]["error_type"]
                found[scenario]["errors"][entry["id"]] = error
    return found


def main():
    request = json.load(sys.stdin)
    scratch = Path(request["scratch"])
    os.environ["BFCL_PROJECT_ROOT"] = str(scratch)
    found = {}
    with contextlib.redirect_stdout(sys.stderr):
        if "formats" in request:
            found["formats"] = formats(request["formats"], scratch)
        found["answers"] = [
            answers(category, kind, texts, scratch)
            for category, kind, texts in request.get("answers", [])
        ]
        found["memories"] = {
            category: memories(category, scripts, scratch)
            for category, scripts in request.get("memories", {}).items()
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
