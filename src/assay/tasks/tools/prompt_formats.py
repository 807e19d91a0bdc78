"""BFCL's format sensitivity: 200 questions, each in 26 formats of prompt and answer.

Upstream's own loader and prompts are used: a system message describes the functions and says how to
write calls, so that rows have no tools. `extra["form"]` says how an answer is decoded
(`decoded_answers`). What upstream reports, and leaves out of its overall score, is how much the
accuracies by format differ (`spread`).
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from assay.data.row import Message, Row, ToolCall
from assay.tasks.tools.checker import ast_check, upstream_module
from assay.tasks.tools.multi_turn import messages_of

FORMAT_SENSITIVITY = "format_sensitivity"


def format_entries(known: Mapping[str, Row]) -> tuple[Row, ...]:
    """The 5200 entries in upstream's order; `known` are the entries that they repeat, by id.

    `extra` has what `decoded_answers` needs. Entries of one question share a `conversation`.
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
        rows.append(_row(entry["id"], known[origin], messages_of(asked), docs, form, tagged))
    return tuple(rows)


def _row(
    id: str, known: Row, asked: tuple[Message, ...], docs: Any, form: str, tagged: bool
) -> Row:
    extra = {
        # Upstream reads the kind of check off the end of the entry's id.
        "category": known.id,
        "functions": docs,
        "form": {"form": form, "tagged": tagged},
    }
    row = Row(id, asked, (), known.gold, known.conversation or known.id, known.origin, extra=extra)
    text = WRITERS[form](known.messages[-1].tool_calls)
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


WRITERS = {
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
