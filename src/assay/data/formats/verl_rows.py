"""Reads and writes verl's RL rows: `data_source, prompt, ability, reward_model, extra_info`.

`prompt` holds plain messages, to which verl (0.9.1) applies the chat template; `ground_truth` is
text. verl's data set and its agent loops take no row's own tools, so that a conversation with tools
is written as the text of a rendering (`plain_text`) or not at all. The row itself is JSON text in
`extra_info.assay`, from which the reader restores it whole.
Without that text the prompt gives the messages, the ground truth the gold, and the id is
`extra_info.id`, else `split/index`, else a hash; where the ground truth holds Hermes calls, the
prompt is parsed as Hermes text and the ground truth is the answer.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from assay.data.conversation import check_order, parse_message
from assay.data.formats.kept import Written, gold_text, kept_row, kept_text
from assay.data.formats.plain_text import PlainText, plain_messages
from assay.data.hashing import content_id
from assay.data.loaded import DataError, Record
from assay.data.renderings.hermes import flatten, parse_text_messages
from assay.data.row import Row

NO_TOOLS = "verl gives the chat template no tools, calls or reasoning of a row's own"
NAME = "name what it is trained for, which writes them as text: --for EXPERIMENT, or --rendering"

COLUMNS = ("data_source", "prompt", "ability", "reward_model", "extra_info")
SCHEMA = pa.schema(
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


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    prompt = tuple(
        parse_message(record, message, f"prompt[{index}]")
        for index, message in enumerate(record.need("prompt", list))
    )
    truth = ground_truth(record)
    info = record.maybe("extra_info", dict) or {}
    if "assay" in info:
        return _restore(record, info["assay"])
    plain = not any(message.tool_calls for message in prompt)
    if plain and isinstance(truth, str) and "<tool_call>" in truth:
        said = [*((m.role, m.content, False) for m in prompt), ("assistant", truth, True)]
        messages, tools = parse_text_messages(record, said, (), "prompt + ground_truth")
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


def dump(row: Row, text: PlainText | None = None) -> Written:
    """The record of a row; nothing is lost. Raises DataError for a row that is no plain chat where
    no `text` writes it, and RenderingError where that cannot.
    """
    special = (m.role == "tool" or m.tool_calls or m.reasoning for m in row.prompt)
    if text is None and (row.tools or any(special)):
        file, _, line = row.origin.rpartition(":")
        raise DataError(NO_TOOLS, file=file, line=int(line or 0), field=f"row {row.id}", fix=NAME)
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
    return Written(value)


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


def _restore(record: Record, text: Any) -> Row:
    """The row that a column keeps. Raises DataError if the others say something else by now."""
    field = "extra_info.assay"
    row, as_text = kept_row(record, field, text, {"prompt": record.value["prompt"]})
    plain = plain_messages(flatten(row.prompt, row.tools))  # as rows were written before
    if not as_text and record.value["prompt"] != plain:
        raise record.error("prompt", f"differs from what {field} keeps", f"remove {field}")
    if record.value["reward_model"]["ground_truth"] != gold_text(row):
        where = "reward_model.ground_truth"
        raise record.error(where, f"differs from what {field} keeps", f"remove {field}")
    return row
