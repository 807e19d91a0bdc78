"""The `[selections.NAME]` tables, stored selections of demonstrations for queries, the
`[synthesise.NAME]` tables, rows that a teacher makes from seeds, and the `[selector]` table: how a
selector, `model = "selector:KIND"`, is made.

Only the accepted values are defined here. `assay synthesise` makes selections and rows, and a data
set reads them as `source = "selections:NAME"` or `"synthesise:NAME"`.
"""

from typing import Annotated, Literal

from pydantic import Field

from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    Positive,
    Refusals,
    RenderingSettings,
    SpecTable,
    Temperature,
    refused,
)
from assay.experiment.reward_tables import Reward, RewardSettings

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
        yield from self._one_of("kind", "file")
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
        if self.kind != "mixed":
            keys = ("random", "samples", "seed", "similar", "temperatures")
            yield from self._unread(keys, 'only kind = "mixed" reads it')
        if self.kind is None:
            yield from self._unread(["width"], 'only kind = "beam" reads it')


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


SYNTHESISE = "synthesise"
"""The kind of a data source that takes made rows, and the name of the table."""
MADE_BY = "synthesis"
"""The field of `extra` with the provenance of a made row."""
JSON = "json"
"""How a teacher writes its rows, where no function of the user's reads them."""


class SynthesiseSpec(RewardSettings, RenderingSettings):
    """Rows that a helper model makes. `rendering`, `template_options`, `keep_special`,
    `reward_...`: as in stages."""

    data: str
    """The seeds: a data set such as `train`."""
    teacher: str = "teacher"
    """The helper model that writes them."""
    prompt: str
    """Text with gaps `{question}`, `{answer}`, `{tools}`, `{number}`, `{extra.NAME}`; `path:FILE`;
    `path:FILE.py:FUNCTION` of seed and sample number."""
    read: str = JSON
    """`json`, or `path:FILE.py:FUNCTION` from seed and text to objects."""
    format: str = "messages"
    """The data format of these objects."""
    keep: Many[str] = ()
    """Further fields of them that are kept."""
    rows: Count
    """Verified rows wanted."""
    samples: Few = 1
    """Most answers to each seed."""
    calls: Count | None = None
    """Most calls of helper models for this table."""
    reward: Reward
    """The gold answer has to earn it in full, an empty one must not."""
    disjoint_from: Many[str] = ()
    """Benchmarks and data sets that share no question with a row, beside the file's evaluations."""

    def _conflicts(self) -> Refusals:
        if self.read != JSON and not self.read.startswith(FILE):
            fix = 'write "json" or "path:FILE.py:FUNCTION"'
            yield refused("read", f"unknown way to write rows {self.read!r}", fix)
