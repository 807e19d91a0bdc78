"""The formats that rows are read from and written to: OpenAI messages, ms-swift, TRL and verl.

`messages`: `{"messages": [...], "tools": [...]}`. Optional: `id`, `conversation`, `gold`; every
other column is kept in `extra`. Arguments and tools may be objects or JSON text; `loss: false` on
an assistant message keeps it from being trained on; user messages may hold images
(`data.message_parts`).

`swift`: agent rows of ms-swift, with roles `tool_call` and `tool_response` (or `tool`) and tools as
JSON text. Consecutive `tool_call` messages, and assistant text right before them, are one assistant
turn, as ms-swift renders them. So are LLaMA-Factory's rows: `conversations` of `from` and `value`,
`function_call` with one call or a list of them, behind a thought in its tags where there is one,
and `observation`. `loss: false` on the messages of a turn keeps it from being trained on, and so
does a `loss_scale` of 0; other weights are refused, as no stage weighs messages.
ms-swift's templates are not the models' own: rows with tools or reasoning are written as the text
of a rendering (`plain_text`) or not at all.

`trl`: `prompt` and, for SFT, `completion`; text or lists of messages. Text becomes a user message
and an assistant message, so it is rendered as a chat, where TRL would train on the bare text. As in
TRL, nothing of a prompt is trained on. SFT reads prompt, completion and `tools`; GRPO reads the
prompt, gives the chat template no tools of a row, and hands every other column, `gold` and `id`
among them, to its reward functions. As the text of a rendering one file serves both trainers.
`datasets` gives a column one type, so tools, gold and nested fields are text there (TRL 1.16).

`verl`: `data_source, prompt, ability, reward_model, extra_info`. `prompt` holds plain messages, to
which verl (0.9.1) applies the chat template; `ground_truth` is text. verl's data set and its agent
loops take no row's own tools, so that a conversation with tools is written as the text of a
rendering or not at all. Without a kept row the prompt gives the messages, the ground truth the
gold, and the id is `extra_info.id`, else `split/index`, else a hash; where the ground truth holds
Hermes calls, the prompt is parsed as Hermes text and the ground truth is the answer.

The row itself is JSON text in the column `assay` (of verl in `extra_info.assay`), from which the
reader restores it whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from assay.data.conversation import (
    check_order,
    loaded_value,
    message_loss,
    message_role,
    parse_call,
    parse_message,
    parse_messages,
    stored_messages,
    untrained,
)
from assay.data.files import canonical_json, content_id
from assay.data.formats.kept import (
    BESIDE,
    CALLS,
    KEPT,
    ROLES,
    KeptRecord,
    build_row,
    chat_row,
    gold_text,
    kept_row,
    kept_text,
    said_in,
    shared_columns,
)
from assay.data.formats.plain_text import BEYOND, PlainText, plain_messages
from assay.data.loaded import Record, error_at
from assay.data.renderings.hermes import THINK, parse_text_messages, split_thinking
from assay.data.row import Message, Row
from assay.data.tools import dump_tools, openai_tool, parse_tools

MESSAGES = ("messages", "tools")


def messages_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    messages = parse_messages(record, record.need("messages", list), "messages", images=True)
    return chat_row(record, messages, *MESSAGES)


def dump_messages_row(row: Row, text: PlainText | None = None) -> KeptRecord:
    """The record of a row; nothing is lost, and no `text` is needed."""
    value = shared_columns(row, *MESSAGES, *BESIDE) | {"messages": stored_messages(row.messages)}
    return KeptRecord(value | {"tools": list(row.tools)} if row.tools else value)


EMPTY = "a hybrid model's earlier answers, to which ms-swift adds an empty thought"


SHAREGPT = {"from": "role", "value": "content"}


def swift_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    if record.value.get(KEPT) is not None:
        written = {"messages": record.value.get("messages")}
        return kept_row(record, KEPT, record.value[KEPT], written)[0]
    messages: list[Message] = []
    sharegpt = record.value.get("messages") is None and "conversations" in record.value
    column, names = ("conversations", SHAREGPT) if sharegpt else ("messages", {})
    for index, value in enumerate(record.need(column, list)):
        path = f"{column}[{index}]"
        raw: dict[str, Any] = record.typed(path, value, dict)
        message = {names.get(key, key): raw[key] for key in raw}
        role = ROLES[message_role(record, message, path, tuple(ROLES))]
        if role != CALLS:
            messages.append(parse_message(record, message | {"role": role}, path))
            continue
        text, thought = message.get("content"), ""
        if isinstance(text, str) and text.lstrip().startswith(THINK):
            thought, text = split_thinking(text)
        content = loaded_value(record, text, f"{path}.content")
        said = content if isinstance(content, list) else [text]
        if not said:
            raise record.error(f"{path}.content", "holds no call")
        calls = tuple(parse_call(record, call, f"{path}.content") for call in said)
        loss = message_loss(record, message, path, "assistant")
        if not (messages and messages[-1].role == "assistant"):
            messages.append(Message("assistant", "", calls, reasoning=thought, loss=loss))
        elif messages[-1].loss != loss:
            fix = "give all messages of the turn the same loss"
            raise record.error(f"{path}.loss", "differs from the loss of the same turn", fix)
        else:
            every, thoughts = (*messages[-1].tool_calls, *calls), messages[-1].reasoning + thought
            messages[-1] = replace(messages[-1], tool_calls=every, reasoning=thoughts)
    ordered = check_order(record, tuple(messages), column)
    return chat_row(record, ordered, *MESSAGES, column, KEPT)


def dump_swift(row: Row, text: PlainText | None = None) -> KeptRecord:
    """The record of a row, and what ms-swift trains beside it. Raises DataError for a row that is
    no plain chat where no `text` writes it, and RenderingError where that cannot.
    """
    if text is None:
        refuse_special(row, row.messages, "ms-swift has its own templates of tools and reasoning")
        earlier = [m.loss for m in row.messages if m.role == "assistant"][:-1]
        messages, losses = row.messages, (EMPTY,) * sum(earlier)
    else:
        messages = text.conversation(row)
        losses = (BEYOND,) if text.tail and row.prompt != row.messages else ()
    shown = {"messages": plain_messages(messages)}
    value = shared_columns(row, *MESSAGES, KEPT) | shown
    return KeptRecord({**value, KEPT: kept_text(row, shown)}, losses)


def refuse_special(row: Row, messages: Sequence[Message], problem: str) -> None:
    """Raise DataError for what a tool does not take of a row but as the text of a rendering."""
    if row.tools or any(m.role == "tool" or m.tool_calls or m.reasoning for m in messages):
        raise error_at(row.origin, problem, NAME, f"row {row.id}")


TEXT = ("prompt", "completion", "tools")
"""The columns that the text of a rendering fills."""
UNLIKE = "answers to which the model's template adds what the rendering does not, in SFTTrainer"
EARLIER = "earlier answers, which SFTTrainer does not train (--expand each_turn makes rows of them)"
NO_TOOLS = (
    "tools in the prompts of GRPOTrainer, which takes none of a row (--for writes them as text)"
)
MISREAD = ("messages", "label", "labels", "chosen", "rejected")
"""Columns by which TRL, or our own reader, would take the row for another kind."""


def trl_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    if record.value.get(KEPT) is not None:
        written = {name: record.value.get(name) for name in TEXT}
        row, as_text = kept_row(record, KEPT, record.value[KEPT], written)
        for field, value in dump_trl(row).value.items():
            known = field == KEPT or (as_text and field in TEXT)
            if not known and record.value.get(field) != value:
                raise record.error(field, f"differs from what {KEPT} keeps", f"remove {KEPT}")
        return row

    messages = said_in(record, "prompt", "user")
    if record.value.get("completion") is not None:
        messages = untrained(messages) + said_in(record, "completion", "assistant")
    ordered = check_order(record, messages, "prompt + completion")
    return build_row(record, ordered, parse_tools(record, record.value.get("tools")), *TEXT, KEPT)


def dump_trl(row: Row, text: PlainText | None = None) -> KeptRecord:
    """The conversational record of a row: its last assistant message is the completion.

    Columns that TRL looks up by name are there in every row, null where there is nothing to say.
    Raises DataError where a field has the name of such a column, and RenderingError.
    """
    value = shared_columns(row, *TEXT, KEPT, *MISREAD)
    # A column has one type in every row: lists and tables are JSON text.
    value = {n: canonical_json(f) if isinstance(f, dict | list) else f for n, f in value.items()}
    target = row.messages[len(row.prompt) :]
    value["gold"] = gold_text(row) if target or row.gold is not None else None
    earlier = sum(m.role == "assistant" and m.loss for m in row.prompt)
    losses = [EARLIER] * earlier if target else []
    if text is not None:
        value["tools"], value["prompt"] = None, plain_messages(text.prompt(row))
        if target:
            answer, equal = text.completion(row)
            value["completion"] = plain_messages((answer,))
            losses += ([BEYOND] if text.tail else []) + ([] if equal else [UNLIKE])
        shown = {name: value.get(name) for name in TEXT}
        return KeptRecord({**value, KEPT: kept_text(row, shown)}, tuple(losses))
    value["tools"] = dump_tools(map(openai_tool, row.tools)) if row.tools else None
    value["prompt"] = stored_messages(row.prompt)
    if target:
        value["completion"] = stored_messages(target)
    losses += [NO_TOOLS] if row.tools else []
    return KeptRecord({**value, KEPT: kept_text(row)}, tuple(losses))


NO_TOOLS_OF_VERL = "verl gives the chat template no tools, calls or reasoning of a row's own"
NAME = "name what it is trained for, which writes them as text: --for EXPERIMENT, or --rendering"

VERL_SCHEMA = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
        "ability": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.struct(
            {"split": pa.string(), "index": pa.int64(), "id": pa.string(), "assay": pa.string()}
        ),
    }
)


def verl_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    prompt = tuple(
        parse_message(record, message, f"prompt[{index}]")
        for index, message in enumerate(record.need("prompt", list))
    )
    truth = ground_truth(record)
    info = record.maybe("extra_info", dict) or {}
    if "assay" in info:
        return _kept_verl_row(record, info["assay"])
    plain = not any(message.tool_calls for message in prompt)
    if plain and isinstance(truth, str) and "<tool_call>" in truth:
        turns = [*((m.role, m.content, False) for m in prompt), ("assistant", truth, True)]
        messages, tools = parse_text_messages(record, turns, (), "prompt + ground_truth")
    else:
        messages, tools = check_order(record, prompt, "prompt"), ()
    return Row(
        id=source_id(record, info),
        messages=messages,
        tools=tools,
        gold=truth,
        origin=record.origin,
        extra=record.others("prompt"),
    )


def ground_truth(record: Record) -> Any:
    """What `reward_model` says that the answer is. Raises DataError where it says nothing."""
    reward_model = record.need("reward_model", dict)
    if "ground_truth" not in reward_model:
        raise record.error("reward_model.ground_truth", "missing")
    return reward_model["ground_truth"]


def dump_verl(row: Row, text: PlainText | None = None) -> KeptRecord:
    """The record of a row; nothing is lost. Raises DataError for a row that is no plain chat where
    no `text` writes it, and RenderingError where that cannot.
    """
    if text is None:
        refuse_special(row, row.prompt, NO_TOOLS_OF_VERL)
    prompt = plain_messages(row.prompt if text is None else text.prompt(row))
    kept = (row.extra.get(name) for name in ("reward_model", "extra_info"))
    model, info = (value if isinstance(value, Mapping) else {} for value in kept)
    index = info.get("index")
    value = {
        "data_source": str(row.extra.get("data_source", "assay")),
        "prompt": prompt,
        "ability": str(row.extra.get("ability", "")),
        "reward_model": {"style": str(model.get("style", "rule")), "ground_truth": gold_text(row)},
        "extra_info": {
            "split": str(info.get("split", "")),
            "index": index if type(index) is int else None,
            "id": row.id,
            "assay": kept_text(row, None if text is None else {"prompt": prompt}),
        },
    }
    return KeptRecord(value)


def placed(value: dict[str, Any], split: str, index: int) -> dict[str, Any]:
    """A record that says its side and its number, where the row it was made from does not."""
    info = value["extra_info"]
    split, index = info["split"] or split, index if info["index"] is None else info["index"]
    return {**value, "extra_info": {**info, "split": split, "index": index}}


def source_id(record: Record, info: dict[str, Any]) -> str:
    """The id that `extra_info` gives, else its split and index, else a hash of the record."""
    if info.get("id") is not None:
        return str(info["id"])
    if info.get("index") is not None:
        return f"{info['split']}/{info['index']}" if info.get("split") else str(info["index"])
    return content_id(record.value)


def _kept_verl_row(record: Record, text: Any) -> Row:
    """The row that a column keeps. Raises DataError if the others say something else by now."""
    field, prompt = "extra_info.assay", record.value["prompt"]
    row, as_text = kept_row(record, field, text, {"prompt": prompt})
    if not as_text and prompt != plain_messages(row.prompt):
        raise record.error("prompt", f"differs from what {field} keeps", f"remove {field}")
    if record.value["reward_model"]["ground_truth"] != gold_text(row):
        where = "reward_model.ground_truth"
        raise record.error(where, f"differs from what {field} keeps", f"remove {field}")
    return row
