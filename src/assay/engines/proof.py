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
from assay.data.renderings.rendering import first_difference
from assay.data.row import Message, Row
from assay.engines.environments import ENVIRONMENTS, ask
from assay.errors import InputError

SCRIPTS = ("verl", "swift", "trl")
"""Formats whose tools can load them; `loaded_by_NAME.py` is read by the tool's own interpreter."""
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
    rows: int
    prompts: int | None
    """Rows whose prompt is Assay's; None where the tool is not asked for prompts."""
    trained: int | None
    """Rows that are trained on the same tokens at the same positions, up to the answer's end."""
    beyond: int
    """Rows of which the tool trains more tokens behind the answer's end."""
    difference: str = ""
    """The first token that differs, in the first such row."""

    @property
    def equal(self) -> bool:
        """Whether all rows are equal."""
        return {self.prompts, self.trained} <= {None, self.rows}


def prove(file: Path, format: str, text: PlainText) -> Proof:
    """Load `file` in the tool of its format. Raises InputError where no tool reads it, what reading
    the file raises, and RunFailure where the tool fails.
    """
    if format not in SCRIPTS:
        raise InputError(f"no other tool loads {format!r}", field="--prove", fix="leave it out")
    rows = list(iter_rows(file, format))
    with tempfile.TemporaryDirectory() as folder:
        text.tokenizer.save_pretrained(folder)
        config = CONFIG | {"vocab_size": len(text.tokenizer)}
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        request = {"file": str(file.resolve()), "model": folder, "template": _template(text)}
        script = Path(__file__).with_name(f"loaded_by_{format}.py")
        made = ask(format, script, request, timeout=60 + len(rows))
    return _compared(ENVIRONMENTS[format].requirements[1], rows, made, text)


def _template(text: PlainText) -> str:
    """The template of ms-swift that Qwen's models of this kind have."""
    if text.opened:
        return "qwen3_thinking"
    (turn,) = text.renderer.turns((Message("user", "a"), Message("assistant", "b")))
    return "qwen3" if "<think>" in text.decode(turn.actions) else "qwen3_nothinking"


def _compared(
    package: str, rows: Sequence[Row], made: Sequence[dict[str, Any]], text: PlainText
) -> Proof:
    counts: Counter[str] = Counter()
    difference = "" if len(rows) == len(made) else f"{len(made)} rows were loaded"
    for row, theirs in zip(rows, made, strict=False):
        wrong = (
            [_difference(text, text.renderer.prompt(row.prompt, row.tools), theirs["prompt"])]
            if "prompt" in theirs
            else []
        )
        counts["prompts"] += wrong == [""]
        if "tokens" in theirs:
            unlike, beyond = _unlike(row, theirs, text)
            wrong.append(unlike)
            counts["trained"] += not unlike
            counts["beyond"] += beyond
        difference = difference or next((f"row {row.id}: {w}" for w in wrong if w), "")
    asked, taught = (any(name in each for each in made) for name in ("prompt", "tokens"))
    prompts = counts["prompts"] if asked else None
    trained = counts["trained"] if taught else None
    return Proof(package, len(rows), prompts, trained, counts["beyond"], difference)


def _unlike(row: Row, theirs: dict[str, Any], text: PlainText) -> tuple[str, bool]:
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
