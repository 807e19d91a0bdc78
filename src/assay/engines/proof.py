"""Compares what another tool trains on, when it loads a converted file, with what Assay trains on.

The tool is the real package in an environment of its own; it gets the file, and the tokenizer with
a small config, in a folder of its own. Compared are the token ids of every row's prompt, and for
supervised training the sequence and its trained positions up to the end of the answer.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.episode import tokens_of
from assay.data.formats.formats import iter_rows
from assay.data.formats.plain_text import PlainText
from assay.data.renderings.rendering import Renderer, first_difference
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, Row
from assay.engines.environments import ENVIRONMENTS, ask
from assay.errors import InputError

SCRIPTS = ("verl", "swift", "trl")
"""Formats whose tools can load them; `loaded_in_tools.py` is read by the tool's own interpreter."""
CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "torch_dtype": "float32",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "head_dim": 8,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1 << 20,
}
"""Of the model that a trainer is made with; its weights are random and never used."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a tool made of a file, row by row."""

    package: str
    questions: int
    """Rows whose prompt the tool asks."""
    prompts: int
    """How many of them are Assay's."""
    taught: int
    """Rows that the tool trains on."""
    trained: int
    """How many of them have Assay's tokens, trained at the same positions."""
    beyond: int
    """How many of those train more tokens behind the end of an answer."""
    difference: str = ""
    """The first token that differs, in the first such row."""

    @property
    def equal(self) -> bool:
        """Whether all rows are equal."""
        return (
            self.prompts == self.questions and self.trained == self.taught and not self.difference
        )


def prove(file: Path, format: str, text: PlainText, rows: Sequence[Row] | None = None) -> Proof:
    """Load `file`, which holds these rows, in the tool of its format. Raises InputError where no
    tool reads it, what reading the file raises, and RunFailure where the tool fails.
    """
    if format not in SCRIPTS:
        raise InputError(f"no other tool loads {format!r}", field="--prove", fix="leave it out")
    rows = list(iter_rows(file, format)) if rows is None else rows
    with tempfile.TemporaryDirectory() as folder:
        text.tokenizer.save_pretrained(folder)
        config = CONFIG | {"vocab_size": len(text.tokenizer)}
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        request = {"format": format, "file": str(file.resolve()), "model": folder}
        request["template"] = template_of(text)
        script = Path(__file__).with_name("loaded_in_tools.py")
        made = ask(format, script, request, timeout=300 + len(rows))
    return _compared(ENVIRONMENTS[format].package, rows, made, text)


def template_of(text: PlainText) -> str:
    """The template of ms-swift that Qwen's models of this kind have."""
    if text.opened:
        return "qwen3_thinking"
    own = Renderer(text.tokenizer, "template")
    (turn,) = own.turns((Message("user", "a"), Message("assistant", "b")))
    return "qwen3" if "<think>" in text.decode(turn.actions) else "qwen3_nothinking"


def _compared(
    package: str, rows: Sequence[Row], made: Sequence[dict[str, Any]], text: PlainText
) -> Proof:
    counts: Counter[str] = Counter()
    difference = "" if len(rows) == len(made) else f"{len(made)} rows of {len(rows)} were loaded"
    for row, theirs in zip(rows, made, strict=False):
        for name, compare in (("prompt", _unlike_prompt), ("tokens", _unlike_sequence)):
            if name not in theirs:
                continue
            try:
                unlike, beyond = compare(row, theirs, text)
            except RenderingError as error:
                unlike, beyond = error.problem, False
            counts.update({name: 1, f"{name} equal": not unlike, "beyond": beyond})
            difference = difference or (unlike and f"row {row.id}: {unlike}")
    numbers = ("prompt", "prompt equal", "tokens", "tokens equal", "beyond")
    return Proof(package, *(counts[name] for name in numbers), difference=difference)


def _unlike_prompt(row: Row, theirs: dict[str, Any], text: PlainText) -> tuple[str, bool]:
    prompt = text.renderer.prompt(row.prompt, row.tools)
    return _difference(text, prompt, theirs["prompt"]), False


def _unlike_sequence(row: Row, theirs: dict[str, Any], text: PlainText) -> tuple[str, bool]:
    """How the trained sequence of a row differs, "" where it does not, and whether more is trained
    behind the end of an answer.
    """
    turn, *others = text.renderer.turns(
        row.messages, row.tools, "last" if "prompt" in theirs else "all"
    )
    if others:
        return f"Assay trains {1 + len(others)} sequences", False
    tokens = (*tokens_of(turn.context), *turn.actions)
    if unlike := _difference(text, tokens, theirs["tokens"][: len(tokens)]):
        return unlike, False
    ours = [False] * len(tokens_of(turn.context)) + list(turn.loss_mask)
    ours += [False] * (len(theirs["tokens"]) - len(tokens))
    behind = False
    beyond = False
    for token, own, their in zip(theirs["tokens"], ours, theirs["trained"], strict=True):
        if own != their and not (their and behind):
            return f"token {text.decode([token])!r} is {'' if their else 'not '}trained", beyond
        beyond |= own != their
        behind = their and (behind or token == text.renderer.end_token)
    return "", beyond


def _difference(text: PlainText, ours: Sequence[int], theirs: Sequence[int]) -> str:
    if list(ours) == list(theirs):
        return ""
    return first_difference(text.tokenizer, list(ours), list(theirs)) or "it goes on"
