"""The `[selector]` table: how a selector of demonstrations, `model = "selector:KIND"`, is made.

Only the accepted values are defined here; kinds and settings meet in `Experiment`. Nothing is
opened.
"""

from typing import Annotated

from pydantic import Field

from assay.experiment.base_table import Few, Positive, Table

SCHEME = "selector:"
KINDS = ("pointer", "bi_encoder", "lever", "random", "similarity", "oracle", "reversed", "singles")
"""The selectors that there are, by the name behind the scheme."""
UNTRAINED = ("random", "similarity", "oracle", "reversed", "singles")
"""Those without weights: nothing is trained. The oracle searches with the right answers."""


class SelectorSpec(Table):
    """A selector of demonstrations."""

    features: Annotated[str, Field(pattern=r"^(minilm|clip|path:.+)$")] = "minilm"
    """`minilm` (texts), `clip` (texts, images), `path:DIR` (an encoder), `path:FILE.npz` or
    `.safetensors` (features by row id)."""
    answers: bool = False
    """A demonstration's features are the mean of question and answer."""
    hidden: Few = 256
    """Width of the pointer's layers."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Dropout of sft, rft and rce; omitted: 0.5, of a lever 0.1."""
    temperature: Positive = 0.1
    """Cosines are divided by it (pointer, bi_encoder)."""
    gate: bool = False
    """A pick changes what the pointer looks for next."""
    vocabulary: Few = 2048
    """Demonstrations that the Lever-LM has words for."""
