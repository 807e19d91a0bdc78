"""Runs the tokenizer's own chat template, in the sandbox that Transformers runs templates in.

What a template leaves out is found by `left_out`. Dates are pinned, because a
prompt that changes overnight cannot be resumed or compared. Also writes Assay's renderings as
Jinja, for other programs: `hermes` goes before the model's own template, the Qwen renderings stand
alone, and `qwen3_fc` does not rewrite a call that an earlier answer holds as mere text.
`template_bare` is the model's own template with Jinja around it that cuts off the system text which
the template writes of itself. `checkpoint_template` chooses which a checkpoint gets.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import meta, nodes, parser
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay.data.conversation import REASONING_KEYS, call_places, dump_messages
from assay.data.renderings import hermes, qwen
from assay.data.row import Message, ToolCall
from assay.data.tools import openai_tool
from assay.errors import InputError

DATE = "26 Jul 2024"
"""The date given to every template: the default of Llama 3's own template."""

DATED = f'{{%- if date_string is not defined %}}{{%- set date_string = "{DATE}" %}}{{%- endif %}}\n'
"""Sets a template's date to that of training, unless its caller passes another."""


@lru_cache(maxsize=64)
def variables(source: str) -> frozenset[str]:
    """The names that a template takes from its caller. Raises jinja2's TemplateSyntaxError."""
    reading = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    return frozenset(meta.find_undeclared_variables(reading.parse(source)))


class Generation(Extension):
    """The `{% generation %}` blocks that some templates mark answers with; taken as they stand."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: parser.Parser) -> list[nodes.Node]:
        """The nodes inside the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@cache
def hermes_beginning() -> str:
    """What goes before a template that writes plain messages, to make it write `hermes`."""
    return _text("hermes.jinja").replace("INSTRUCTION", _quoted(hermes.INSTRUCTION))


@cache
def qwen_template(handler: bool) -> str:
    """The whole template of `qwen3_fc` where `handler`, else of `qwen3`."""
    text = _text("qwen.jinja").replace("NAME", "qwen3_fc" if handler else "qwen3")
    text = text.replace("HANDLER", "true" if handler else "false")
    text = text.replace("BEFORE_TOOLS", _quoted(qwen.BEFORE_TOOLS))
    return text.replace("AFTER_TOOLS", _quoted(qwen.AFTER_TOOLS))


def undressed(source: str) -> str:
    """A model's own template, without what `checkpoint_template` put around it."""
    own = source.removeprefix(DATED).removeprefix(hermes_beginning()).removeprefix(IN_PARTS)
    own = _STORED.sub("", own)
    if not own.startswith(BARE):
        return own
    own, _, rest = own.removeprefix(BARE).rpartition(BARE_END)
    return _STORED.sub("", own + "\n" if rest.startswith(LINE_END) else own)


OPTIONS, STORED = "{#- template_options #}", "{#- template_options of the training #}"
OPTIONS_END = "{#- end of template_options #}\n"
_STORED = re.compile(f"^(?:{re.escape(STORED)}.*?{re.escape(OPTIONS_END)})+", re.DOTALL)
GIVEN = ("messages", "tools", "documents", "chat_template", "date_string", "tokenize")
GIVEN += ("add_generation_prompt", "continue_final_message")
"""Variables that renderings give templates themselves."""


def with_options(tokenizer: Any, options: Mapping[str, Any], strict: bool = True) -> Any:
    """The tokenizer with templates that have these variables, unless their caller gives others.

    A variable that no template reads is left out, or raises RenderingError where `strict`.
    """
    read = {}
    for name, value in options.items():
        if not name.isidentifier() or name in GIVEN:
            problem = f"{name!r} is no option of a template"
            raise RenderingError(problem, field="template_options", fix="remove it")
        if any(name in variables(source) for source in _sources(tokenizer).values()):
            read[name] = value
        elif strict:
            problem = f"the chat template reads no {name!r}"
            raise RenderingError(problem, field="template_options", fix="correct or remove it")
    if not read:
        return tokenizer
    sets = (
        f"{{%- if {name} is not defined %}}{{%- set {name} = {_literal(value)} %}}{{%- endif %}}"
        for name, value in sorted(read.items())
    )
    before = f"{OPTIONS}{''.join(sets)}{OPTIONS_END}"
    made = copy.copy(tokenizer)
    sources = {name: before + source for name, source in _sources(tokenizer).items()}
    made.chat_template = sources if isinstance(tokenizer.chat_template, dict) else sources[""]
    return made


def _sources(tokenizer: Any) -> dict[str, str]:
    """The model's own templates by name."""
    several = tokenizer.chat_template
    if isinstance(several, dict):
        return {name: undressed(source) for name, source in several.items()}
    return {"": template_source(tokenizer)}


def _literal(value: Any) -> str:
    """A JSON value as Jinja writes it."""
    if isinstance(value, Mapping):
        pairs = (f"{_literal(str(key))}: {_literal(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return "none" if value is None else json.dumps(value)


def _text(name: str) -> str:
    return (files("assay.data.renderings") / name).read_text(encoding="utf-8")


def _quoted(text: str) -> str:
    """The text inside single quotes, as Jinja reads them."""
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")


BARE = "{#- Assay's rendering `template_bare`. -#}{% set written %}"
"""Before a model's own template, which writes into `written`."""
BARE_END = "{% endset %}{#- end of the model's own template -#}"
LINE_END = "{#- it ends its last line -#}"
"""Behind a template whose last line end Jinja ignores; within another one it would not."""

NO_PLACE = "the chat template writes tools into the system text that 'template_bare' leaves out"


LF = "\n"


def bare_template(tokenizer: Any, source: str) -> str:
    """The template `source`, but without the system text that it writes where a conversation has
    none. Raises RenderingError where that text cannot be told from the question.
    """
    written, question = beginning(tokenizer, source)
    # A token that begins the text stays; SmolLM2 calls the one so that begins each of its turns.
    bos = tokenizer.bos_token or ""
    kept = bos if bos and written.startswith(bos) and bos not in question else ""
    if written == kept:
        return source
    return (
        f"{BARE}{source.removesuffix(LF)}{BARE_END}{LINE_END if source.endswith(LF) else ''}"
        "{%- if messages and messages[0]['role'] == 'system' %}{{- written }}"
        f"{{%- elif written.startswith('{_quoted(written)}') %}}"
        f"{{{{- '{_quoted(kept)}' + written[{len(written)}:] }}}}"
        f"{{%- else %}}{{{{- raise_exception('{_quoted(NO_PLACE)}') }}}}{{%- endif %}}"
    )


@lru_cache(maxsize=64)
def beginning(tokenizer: Any, source: str) -> tuple[str, str]:
    """What a template writes before the first question and not before a later one, and how it
    writes a question.

    Raises RenderingError where a first question reads otherwise than a later one.
    """
    first, later, reply = PROBE + "a", PROBE + "b", PROBE + "c"
    talk = (Message("user", first), Message("assistant", reply))
    opening = apply_template(tokenizer, source, talk[:1], (), True)
    ended = apply_template(tokenizer, source, talk, (), False).rpartition(reply)[2]
    whole = apply_template(tokenizer, source, (*talk, Message("user", later)), (), True)
    question = whole.rpartition(reply)[2].removeprefix(ended).replace(later, first)
    if PROBE not in question or not opening.endswith(question):
        problem = "what the chat template writes of itself cannot be told from the first question"
        raise RenderingError(problem, field="rendering", fix="use rendering = 'template'")
    return opening.removesuffix(question), question


CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Turns for tokenizers that have ChatML's tokens and no template."""


MEND = "restore the model's own template"
TAKES_NONE = "the template takes no such conversation: change the rows, or use another rendering"

PROBE = "qzxprobe"
"""A word that no template writes by itself."""
PROBE_TALK = (Message("user", "a"), Message("assistant", PROBE))


PROBED_CALL = ToolCall("f", {"ort": "Zürich 苏黎世", "n": [1.5, None, True]}, "call00001")
PROBED_TOOL = {
    "name": "f",
    "description": "天气 é",
    "parameters": {"type": "object", "properties": {"ort": {"type": "string"}}},
}
ASKED = (Message("system", "s"), Message("user", "你好"))
CALLED = Message("assistant", "", (PROBED_CALL, PROBED_CALL), reasoning="r")
ANSWERED = Message("assistant", "text", reasoning="t")
PROBES: tuple[tuple[Sequence[Message], Sequence[Mapping[str, Any]]], ...] = (
    (ASKED[1:], ()),
    (ASKED, ()),
    (ASKED[1:], (PROBED_TOOL,)),
    (ASKED, (PROBED_TOOL, PROBED_TOOL | {"name": "g"})),
    ((*ASKED, Message("assistant", "text")), (PROBED_TOOL,)),
    ((*ASKED, ANSWERED), ()),
    ((*ASKED, CALLED, Message("tool", "1"), Message("tool", "2")), (PROBED_TOOL,)),
    ((*ASKED, CALLED, Message("tool", "1"), ANSWERED), (PROBED_TOOL,)),
    (
        (*ASKED, ANSWERED, Message("user", "?"), Message("assistant", "x", (PROBED_CALL,))),
        (PROBED_TOOL,),
    ),
)
"""Conversations that two templates must write alike to be one: tools, several calls and turns,
reasoning, other scripts."""


class RenderingError(InputError):
    """A conversation that cannot be rendered as asked."""


def template_source(tokenizer: Any, tools: bool = False) -> str:
    """The Jinja text in use, of a checkpoint of Assay's that of the model that was trained.

    Raises RenderingError if there is none, and none can be assumed.
    """
    if tokenizer.chat_template:
        return undressed(tokenizer.get_chat_template(None, [{}] if tools else None))
    if {"<|im_start|>", "<|im_end|>"} <= set(tokenizer.get_vocab()):
        return CHATML
    raise RenderingError(
        "the tokenizer has no chat template", fix="add a chat_template.jinja to the model folder"
    )


def render_template(
    tokenizer: Any,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    generation: bool,
    bare: bool = False,
) -> str:
    """The text of a conversation, ending in the generation prompt if `generation`; without the
    template's own system text if `bare`.

    Raises RenderingError if the template fails.
    """
    source = template_source(tokenizer, bool(tools))
    if "strftime_now" in source and "date_string" not in source:
        fix = "write a fixed date into chat_template.jinja in its place"
        raise RenderingError("the chat template asks for today's date (strftime_now)", fix=fix)
    if bare:
        if tools and messages[0].role != "system":
            text = apply_template(tokenizer, source, messages, tools, True)
            if not text.startswith(beginning(tokenizer, source)[0]):
                fix = "use 'template' or 'hermes', or give each conversation a system message"
                raise RenderingError(NO_PLACE, field="rendering", fix=fix)
        source = bare_template(tokenizer, source)
    return apply_template(tokenizer, source, messages, tools, generation)


def check_template(tokenizer: Any) -> None:
    """Raise RenderingError unless the tokenizer's own templates, where it has any, write a question
    and an answer."""
    if not tokenizer.chat_template:
        return
    messages = (Message("user", PROBE), Message("assistant", PROBE))
    for source in dict.fromkeys(template_source(tokenizer, tools) for tools in (False, True)):
        if apply_template(tokenizer, source, messages, (), False).count(PROBE) < len(messages):
            raise RenderingError("the chat template does not write the messages", fix=MEND)


def apply_template(
    tokenizer: Any,
    source: str,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    generation: bool,
) -> str:
    """What the template `source` writes, whatever it leaves out. Raises RenderingError."""

    parts = reads_parts_alone(tokenizer, source)

    def written(arguments_as_text: bool) -> str:
        dumped = template_messages(messages, arguments_as_text)
        return tokenizer.apply_chat_template(
            [in_parts(message) for message in dumped] if parts else dumped,
            tools=[openai_tool(tool) for tool in tools] or None,
            chat_template=source,
            add_generation_prompt=generation,
            tokenize=False,
            date_string=DATE,
        )

    try:
        return written(False)
    except Exception as error:
        # A template is a program: it can raise whatever a program can.
        why = " ".join(str(error).split()) or type(error).__name__
        failed = RenderingError(f"the chat template failed: {why}", fix=TAKES_NONE)
        if not any(message.tool_calls for message in messages):
            raise failed from error
    try:
        # Some templates add the arguments of calls to a text, as OpenAI sends them.
        return written(True)
    except Exception as error:
        raise failed from error


@lru_cache(maxsize=64)
def reads_parts_alone(tokenizer: Any, source: str) -> bool:
    """Whether a template writes a text that is a list of parts and not one that is a string, as
    those of some models that read images do (SmolVLM, Idefics 3)."""
    message = {"role": "user", "content": PROBE}
    return not _writes(tokenizer, source, message) and _writes(tokenizer, source, in_parts(message))


def _writes(tokenizer: Any, source: str, message: Mapping[str, Any]) -> bool:
    try:
        text = tokenizer.apply_chat_template([message], chat_template=source, tokenize=False)
    except Exception:
        # What a template cannot read it may fail on; if it reads neither, its caller says so.
        return False
    return PROBE in text


IN_PARTS = (
    "{%- set parted = namespace(messages=[]) %}{%- for message in messages %}"
    "{%- set text = message['content'] %}{%- set parted.messages = parted.messages + [{'role': "
    "message['role'], 'content': [{'type': 'text', 'text': text}] if text is string else text}] %}"
    "{%- endfor %}{%- set messages = parted.messages %}"
)
"""`in_parts` as Jinja, between `hermes` and a model's own template that needs it."""


def in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with its text as a list of one part."""
    text = message.get("content")
    return {**message, "content": [{"type": "text", "text": text}] if text else []}


def template_messages(
    messages: Sequence[Message], arguments_as_text: bool = False
) -> list[dict[str, Any]]:
    """Messages as JSON; reasoning under all names that templates have for it, and a tool result
    with the name of its function."""
    values = dump_messages(tuple(messages))
    calls: Sequence[ToolCall] = ()
    for value, message, place in zip(values, messages, call_places(messages), strict=True):
        calls = calls if message.role == "tool" else message.tool_calls
        if message.reasoning:
            value |= dict.fromkeys(REASONING_KEYS, message.reasoning)
        if message.name or place is not None:
            value["name"] = message.name or calls[place or 0].name
        for function in (each["function"] for each in value.get("tool_calls", ())):
            if arguments_as_text:
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return values


ADDS_BOS = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer")
"""Classes that begin a text with BOS in Transformers 4, and in 5 not, where nothing is said."""


def write_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer in words that Transformers 4 knows too, and 5 reads as its own."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    if settings["tokenizer_class"] in ADDS_BOS:
        settings["add_bos_token"] = tokenizer.bos_token_id in tokenizer("")["input_ids"]
    # Transformers 4 expects a table under this name, and stops at a list.
    if isinstance(extra := settings.pop("extra_special_tokens", None), list):
        settings["additional_special_tokens"] = extra
    elif extra is not None:
        settings["extra_special_tokens"] = extra
    text = json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")
