"""The `[selections.NAME]` tables, stored selections of demonstrations for queries, and the
`[selector]` table: how a selector, `model = "selector:KIND"`, is made.

Only the accepted values are defined here. `assay synthesise` makes the selections, and a data set
reads them as `source = "selections:NAME"`.
"""

from typing import Annotated, Literal

from pydantic import Field

from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    Positive,
    Refusals,
    SpecTable,
    Temperature,
    one_of,
    refused,
)

SELECTIONS = "selections"
"""The kind of a data source that takes stored selections, and the name of the table."""
FILE = "path:"
RUN = "run:"

Unhealthy = Literal["few_queries_with_a_positive", "few_groups_with_signal"]
"""What `allow` may accept, see `labs.demos.stored`."""


class SelectionsSpec(SpecTable):
    """Stored selections for each query, with what the frozen model made of them."""

    data: str
    """The queries: a data set of the demos task."""
    kind: Literal["beam", "mixed"] | None = None
    """A beam search by InfoScore, or a trained selector's beam and samples, similar and random
    selections; this or `file`."""
    file: str | None = None
    """`path:rl_data.json`: selections made elsewhere."""
    width: Few = 5
    """Selections that a beam search keeps."""
    selector: str | None = None
    """Of `mixed`: the trained selector, `run:NAME@CHECKPOINT`."""
    temperatures: Many[Temperature] = (1.0, 1.3)
    """Of `mixed`: of the selector's samples."""
    samples: Few = 2
    """Of `mixed`: samples at each temperature."""
    similar: Annotated[int, Field(ge=0, le=1000)] = 5
    """Of `mixed`: similar selections."""
    random: Annotated[int, Field(ge=0, le=1000)] = 1
    """Of `mixed`: random selections."""
    seed: Count = 42
    """Of `mixed`: seed of samples and random selections."""
    fallback: Literal["skip", "keep"] = "skip"
    """Selections not scored by the benchmark's own metric."""
    require_positive: bool = False
    """Only queries with a selection that scored."""
    allow: Many[Unhealthy] = ()
    """Faults of the groups that are accepted."""

    @property
    def makes(self) -> dict[str, object]:
        """The settings that what is made depends on."""
        read_only = {"fallback", "require_positive", "allow"}
        return self.model_dump(mode="json", exclude_none=True, exclude=read_only)

    def _conflicts(self) -> Refusals:
        yield from one_of(self, "kind", "file")
        if self.file is not None and not self.file.removeprefix(FILE):
            yield refused("file", "names no file", 'write file = "path:rl_data.json"')
        elif self.file is not None and not self.file.startswith(FILE):
            yield refused("file", f"{self.file!r} is no path", f'write file = "path:{self.file}"')
        if (self.kind == "mixed") != (self.selector is not None):
            fix = 'for example selector = "run:NAME@STAGE.best"'
            missing = self.selector is None
            problem = "missing" if missing else 'only kind = "mixed" asks a selector'
            yield refused("selector", problem, fix if missing else "remove it")
        elif self.selector is not None and not self.selector.startswith(RUN):
            fix = 'write selector = "run:NAME@STAGE.best"'
            yield refused("selector", f"{self.selector!r} names no run", fix)
        own = {"temperatures", "samples", "similar", "random", "seed"}
        wrong = set[str]() if self.kind == "mixed" else own
        wrong |= set() if self.kind else {"width"}
        for key in sorted(wrong & self.model_fields_set):
            if getattr(self, key) != type(self).model_fields[key].default:
                what = "mixed" if key in own else "beam"
                yield refused(key, f'only kind = "{what}" reads it', "remove it")


SCHEME = "selector:"
KINDS = ("pointer", "lever", "random", "similarity", "oracle", "reversed", "singles")
"""The selectors that there are, by the name behind the scheme."""
UNTRAINED = ("random", "similarity", "oracle", "reversed", "singles")
"""Those without weights: nothing is trained. The oracle searches with the right answers."""


class SelectorSpec(SpecTable):
    """A selector of demonstrations."""

    features: Annotated[str, Field(pattern=r"^(minilm|clip|path:.+)$")] = "minilm"
    """`minilm` (texts), `clip` (texts, images), `path:DIR` (an encoder)."""
    answers: bool = False
    """Features are the mean of question and answer."""
    hidden: Few = 256
    """Width of the pointer's layers."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Dropout of sft, rft and rce; omitted: 0.5, of a lever 0.1."""
    temperature: Positive = 0.1
    """Cosines are divided by it (pointer, similarity)."""
    gate: bool = False
    """A pick changes what the pointer looks for next."""
    vocabulary: Few = 2048
    """Demonstrations that the Lever-LM has words for."""
