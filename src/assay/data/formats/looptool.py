"""LoopTool's RL rows: verl's columns with a system text, one rendered history and a Hermes answer.

`prompt` is a system message that holds the tools and a user message that holds the whole history,
with `<|im_end|>` and `<|im_start|>` between the turns; `reward_model.ground_truth` is the answer.
The history becomes messages again, the answer the last of them; the gold stays the text. The copies
of prompt and answer in `extra_info` are left out.
"""

from assay.data.conversation import message_role
from assay.data.formats.verl_rows import ground_truth, source_id
from assay.data.raw_record import Record
from assay.data.renderings.hermes import Said, parse_text_messages, split_chatml
from assay.data.row import Row

COPIES = ("instruction", "input", "output")


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    said: list[Said] = []
    for index, value in enumerate(record.need("prompt", list)):
        path = f"prompt[{index}]"
        message = record.typed(path, value, dict)
        role = message_role(record, message, path, ("system", "user"))
        text = record.typed(f"{path}.content", message.get("content"), str)
        if role == "user":
            said += [(*turn, True) for turn in split_chatml(record, _whole(text), path)]
        else:
            said.append((role, text, True))
    truth = record.typed("reward_model.ground_truth", ground_truth(record), str)
    said.append(("assistant", truth, True))
    messages, tools = parse_text_messages(record, said, (), "prompt")
    info = record.maybe("extra_info", dict) or {}
    kept = {key: value for key, value in info.items() if key not in COPIES}
    extra = {**record.others("prompt", "extra_info"), "extra_info": kept}
    return Row(source_id(record, info), messages, tools, truth, origin=record.origin, extra=extra)


def _whole(text: str) -> str:
    """The history with the marks of its first and last turn, which the data leaves out."""
    return text if text.startswith("<|im_start|>") else f"<|im_start|>user\n{text}<|im_end|>\n"
