"""Reads the categories of BFCL v4 that ask one question from the bfcl-eval wheel as rows.

The target of a row is the first possible answer of each argument; it counts only if BFCL's own
checker accepts it, so every row that has a target is proven answerable. The relevance categories
have no possible answers. Format sensitivity asks 200 questions in 26 formats of prompt and answer,
with upstream's own prompts: a system message describes the functions, so that rows have no tools.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from assay.data.row import Message, Row, ToolCall
from assay.data.wheels import wheel_directory
from assay.tasks.task import Loaded, lookup
from assay.tasks.tools.agentic import AGENTIC, agentic_entries
from assay.tasks.tools.checker import LANGUAGES, WHEEL, ast_check, upstream_module
from assay.tasks.tools.multi_turn import MULTI_TURN, hinted, messages_of, multi_turn_entries
from assay.tasks.tools.rewards import RELEVANCE

FORMAT_SENSITIVITY = "format_sensitivity"


def format_entries(known: Mapping[str, Row]) -> tuple[Row, ...]:
    """The 5200 entries in upstream's order; `known` are the entries that they repeat, by id.

    `extra` has what decoding an answer needs. Entries of one question share a `conversation`.
    """
    utils, prompts = upstream_module("utils"), upstream_module("model_handler.utils")
    rows = []
    for entry in utils.load_dataset_entry(FORMAT_SENSITIVITY):
        config, _, origin = entry["id"].partition(":")[2].partition(":")
        docs = entry["function"]
        asked = prompts.system_prompt_pre_processing_chat_model(
            entry["question"][0], docs, entry["id"]
        )
        form, tagged, *_ = prompts.parse_prompt_variation_params(config)
        rows.append(_format_row(entry["id"], known[origin], messages_of(asked), docs, form, tagged))
    return tuple(rows)


def _format_row(
    id: str, known: Row, asked: tuple[Message, ...], docs: Any, form: str, tagged: bool
) -> Row:
    extra = {
        # Upstream reads the kind of check off the end of the entry's id.
        "category": known.id,
        "functions": docs,
        "form": {"form": form, "tagged": tagged},
    }
    row = Row(id, asked, (), known.gold, known.conversation or known.id, known.origin, extra=extra)
    text = FORMATS[form](known.messages[-1].tool_calls)
    text = f"<TOOLCALL>{text}</TOOLCALL>" if tagged else text
    error = _gold_error(row, text)
    if error:
        return replace(row, extra={**extra, "no_target": error})
    return replace(row, messages=(*asked, Message("assistant", text)))


def _gold_error(row: Row, text: str) -> str:
    """Upstream's type of error for the known answer in the row's format; "" if it is accepted."""
    prompts = upstream_module("model_handler.utils")
    form = prompts.ReturnFormat(row.extra["form"]["form"])
    decoded = prompts.default_decode_ast_prompting(text, form, row.extra["form"]["tagged"])
    calls = [ToolCall(name, arguments) for call in decoded for name, arguments in call.items()]
    return ast_check(row, calls).error_type


def _in_python(calls: Iterable[ToolCall]) -> str:
    written = [
        f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
        for call in calls
    ]
    return f"[{', '.join(written)}]"


def _in_json(calls: Iterable[ToolCall]) -> str:
    return json.dumps([{"function": c.name, "parameters": dict(c.arguments)} for c in calls])


def _in_verbose_xml(calls: Iterable[ToolCall]) -> str:
    written = [
        f"<function name={quoteattr(call.name)}><params>"
        + "".join(
            f"<param name={quoteattr(name)} value={quoteattr(text)} type={quoteattr(type_)}/>"
            for name, text, type_ in _typed(call)
        )
        + "</params></function>"
        for call in calls
    ]
    return f"<functions>{''.join(written)}</functions>"


def _in_concise_xml(calls: Iterable[ToolCall]) -> str:
    written = [
        f"<function name={quoteattr(call.name)}>"
        + "".join(
            f"<param name={quoteattr(name)} type={quoteattr(type_)}>{escape(text)}</param>"
            for name, text, type_ in _typed(call)
        )
        + "</function>"
        for call in calls
    ]
    return f"<functions>{''.join(written)}</functions>"


_TYPES = {str: "string", bool: "boolean", int: "integer", float: "float", list: "array"}


def _typed(call: ToolCall) -> list[tuple[str, str, str]]:
    """Name, text and type of each argument."""
    return [
        (name, value if isinstance(value, str) else repr(value), _TYPES.get(type(value), "dict"))
        for name, value in call.arguments.items()
    ]


FORMATS = {
    "python": _in_python,
    "json": _in_json,
    "verbose_xml": _in_verbose_xml,
    "concise_xml": _in_concise_xml,
}
"""How calls are written in upstream's formats of answers."""


def config_of(item: str) -> str:
    """The format of an entry, by its id."""
    return item.split(":")[1]


def spread(scores: Mapping[str, float]) -> tuple[float, float]:
    """How much the accuracies of items differ by format: the largest difference and the standard
    deviation, in points with two decimals (upstream: format_sensitivity_runner)."""
    by_config: dict[str, list[float]] = {}
    for item, score in scores.items():
        by_config.setdefault(config_of(item), []).append(score)
    means: Sequence[float] = [sum(each) / len(each) for each in by_config.values()]
    if len(means) < 2:
        return 0.0, 0.0
    return (
        round((max(means) - min(means)) * 100, 2),
        round(statistics.stdev(means) * 100, 2),
    )


Doc = Mapping[str, Any]
"""A parameter as BFCL's function doc describes it, in the words of the language."""


def in_language(row: Row, call: ToolCall) -> ToolCall:
    """A call of a row of LANGUAGES whose arguments are values, with arguments that are text."""
    (doc,) = row.extra["functions"]
    write, known = WRITERS[LANGUAGES[row.extra["category"]]], doc["parameters"]["properties"]
    texts = {
        name: value if isinstance(value, str) else write(value, known[name])
        for name, value in call.arguments.items()
    }
    return replace(call, arguments=texts)


def as_source(row: Row) -> Row:
    """The row with its target as source text, where it has one that upstream's parser reads: it
    drops the body of a HashMap."""
    if not row.messages[-1].tool_calls:
        return row
    (call,) = row.messages[-1].tool_calls
    if any("{{" in text for text in call.arguments.values()):
        return replace(row, messages=row.prompt, extra={**row.extra, "no_target": "a HashMap"})
    arguments = ", ".join(f"{name}={_quoted(text)}" for name, text in call.arguments.items())
    target = Message("assistant", f"[{call.name}({arguments})]")
    return replace(row, messages=(*row.messages[:-1], target))


def _quoted(text: str) -> str:
    """As upstream's decoders read it back: they take the quotes off."""
    return text if '"' in text or text[:1] in ("[", "{") else f'"{text}"'


def java(value: Any, doc: Doc) -> str:
    """A value in Java."""
    inner = doc.get("items", {}).get("type", "Object")
    match value:
        case list() if doc["type"] == "ArrayList":
            return f"new ArrayList<{inner}>(Arrays.asList({_listed(value, inner)}))"
        case list():
            return f"new {inner}[]{{{_listed(value, inner)}}}"
        case dict():
            puts = [f"put({json.dumps(key)}, {json.dumps(item)});" for key, item in value.items()]
            return f"new HashMap<String, Object>() {{{{ {' '.join(puts)} }}}}"
        case int() if doc["type"] == "long":
            return f"{value}L"
    return json.dumps(value)


def _listed(values: list[Any], type_: str) -> str:
    return ", ".join(java(value, {"type": type_}) for value in values)


def javascript(value: Any, doc: Doc) -> str:
    """A value in JavaScript, of which JSON is a part."""
    return json.dumps(value)


WRITERS: Mapping[str, Callable[[Any, Doc], str]] = {"java": java, "javascript": javascript}


# The categories whose calls in Python are compared with possible answers.
CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)


SEVERAL = "its answer is more than one call"


def entries(category: str) -> tuple[Row, ...]:
    """All entries of `category` in the source's order.

    Raises InputError for a category that is not in ENTRIES.
    """
    return lookup(ENTRIES, category, "BFCL category")(category)


def ast_entries(category: str) -> tuple[Row, ...]:
    """The entries of a category of CATEGORIES or LANGUAGES; `gold` is the list of possible answers.

    `tools` are the function docs as BFCL's loader shows them, with a hint at the language; those of
    LANGUAGES are in `extra["functions"]` as the checker needs them. `messages` end
    with the target assistant message where the checker accepts one, else `extra["no_target"]`
    holds its error type.
    Live entries that share a function doc share a `conversation`.
    """
    data = wheel_directory(WHEEL) / "bfcl_eval" / "data" / "possible_answer"
    answers = (data / f"BFCL_v4_{category}.json").read_text(encoding="utf-8").splitlines()
    rows = relevance_entries(category)
    return tuple(
        _with_target(row, json.loads(answer)["ground_truth"])
        for row, answer in zip(rows, answers, strict=True)
    )


def relevance_entries(category: str) -> tuple[Row, ...]:
    """The entries of a category of RELEVANCE: questions and functions, nothing to compare with."""
    file = wheel_directory(WHEEL) / "bfcl_eval" / "data" / f"BFCL_v4_{category}.json"
    questions = file.read_text(encoding="utf-8").splitlines()
    return tuple(
        _row(category, json.loads(question), f"{file.name}:{line}")
        for line, question in enumerate(questions, start=1)
    )


def _formats(category: str) -> tuple[Row, ...]:
    return format_entries({row.id: row for name in CATEGORIES for row in ast_entries(name)})


ENTRIES: Mapping[str, Callable[[str], tuple[Row, ...]]] = {
    **dict.fromkeys((*CATEGORIES, *LANGUAGES), ast_entries),
    **dict.fromkeys(RELEVANCE, relevance_entries),
    **dict.fromkeys(MULTI_TURN, multi_turn_entries),
    **dict.fromkeys(AGENTIC, agentic_entries),
    FORMAT_SENSITIVITY: _formats,
}
"""Every category that can be read, and its reader."""


def read_bfcl(category: str) -> Loaded:
    """The entries that have a target, for training; the others are dropped by reason.

    Entries that never have one, of several turns or of a relevance category, are all kept: rewards
    can judge what a model does with them.
    """
    rows = entries(category)
    dropped = defaultdict(list)
    for row in rows:
        if "no_target" in row.extra:
            dropped[f"no possible answer passes the checker: {row.extra['no_target']}"] += [row.id]
    kept = tuple(row for row in rows if "no_target" not in row.extra)
    return Loaded(kept, {reason: tuple(ids) for reason, ids in dropped.items()})


def read_single(category: str) -> Loaded:
    """`read_bfcl` of entries that ask for one call, each with no function but the one it calls.

    A category of many functions and one right call becomes questions in the form of `simple_python`
    and `live_simple`; that no other function is there to choose from makes them easier. Entries of
    several calls are dropped. Raises InputError for a category without possible answers.
    """
    lookup(dict.fromkeys(CATEGORIES, True), category, "BFCL category with possible answers")
    loaded = read_bfcl(category)
    single = tuple(_called_function_only(row) for row in loaded.rows if len(row.gold) == 1)
    several = tuple(row.id for row in loaded.rows if len(row.gold) != 1)
    return Loaded(single, {**loaded.dropped, **({SEVERAL: several} if several else {})})


def _called_function_only(row: Row) -> Row:
    (call,) = row.gold
    return replace(row, tools=tuple(doc for doc in row.tools if doc["name"] in call))


def _row(category: str, entry: Any, origin: str) -> Row:
    tools, docs = hinted(entry["function"]), {}
    if category in LANGUAGES:
        shown = upstream_module("utils")._func_doc_language_specific_pre_processing
        tools = tuple(shown(deepcopy(entry["function"]), category))
        docs = {"functions": entry["function"]}
    return Row(
        id=entry["id"],
        messages=messages_of(entry["question"][0]),
        tools=tools,
        # The first two numbers of a live id are the entry and its function doc.
        conversation=category + "-" + entry["id"].split("-")[1] if "live" in category else "",
        origin=origin,
        extra={"category": category, **docs},
    )


def _with_target(row: Row, answer: Any) -> Row:
    """The row with its possible answers, and with its target if the checker accepts it."""
    row = replace(row, gold=answer)
    calls = target_calls(row)
    if row.extra["category"] in LANGUAGES:
        calls = tuple(in_language(row, call) for call in calls)
    result = ast_check(row, calls)
    if result.valid:
        return replace(row, messages=(*row.messages, Message("assistant", "", tool_calls=calls)))
    return replace(row, extra={**row.extra, "no_target": result.error_type})


def target_calls(row: Row) -> tuple[ToolCall, ...]:
    """The first possible answer of each argument of each call in `row.gold`.

    An argument is left out where its first answer is "" (BFCL's mark of an optional one) and the
    function does not require it, where it has no possible answer at all, and where the function
    does not declare it and may go without.
    """
    docs = {doc["name"]: doc["parameters"] for doc in row.tools}
    return tuple(
        ToolCall(name, _arguments(docs[name], answers))
        for call in row.gold
        for name, answers in call.items()
    )


def _arguments(parameters: Mapping[str, Any], answers: Mapping[str, list[Any]]) -> dict[str, Any]:
    chosen = {}
    for name, options in answers.items():
        if name not in parameters["properties"] and "" in options:
            continue
        if name in parameters["required"]:
            # A required argument has to be given, with the first answer that is not "".
            options = sorted(options, key=lambda option: option == "")
        elif options[:1] == [""]:
            continue
        if options:
            chosen[name] = _value(options[0])
    return chosen


def _value(answer: Any) -> Any:
    """A possible answer as a value: a dict, alone or in a list, has options for each key again."""
    if isinstance(answer, dict):
        return {key: options[0] for key, options in answer.items() if options[0] != ""}
    return [_value(item) for item in answer] if isinstance(answer, list) else answer
