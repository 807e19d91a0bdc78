"""Opens the model behind `assay serve`: its source, context length and sampling settings.

A checkpoint is loaded as an evaluation loads it, so that both give the same answers. Knows no HTTP.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.data.files import with_scheme
from assay.data.renderings.rendering import Renderer
from assay.lab.models.language_learner import language_model, make_renderer, model_folder
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.models.source import EXAMPLES
from assay.rollout.engines.batcher import Sampler
from assay.rollout.engines.register import sampler_here
from assay.runs.run_names import experiment_of, find_named
from assay.runs.status import stored_status

UNBOUNDED = 1 << 17
"""Tokens of context that are served of a model that states no limit, such as a recurrent one."""


@dataclass(frozen=True)
class Served:
    """A model under the name that clients ask for."""

    name: str
    renderer: Renderer
    end_tokens: frozenset[int]
    context_tokens: int
    """The most tokens that a prompt and its completion may have together."""
    sampler: Sampler
    folder: Path
    """The folder of config and tokenizer, for clients that render themselves."""

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self.renderer.tokenizer

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token."""
        return max(map(len, self.tokenizer.get_vocab()))


@contextmanager
def opened(root: Path, target: str, rendering: str, name: str | None = None) -> Iterator[Served]:
    """The model of `NAME@CHECKPOINT` or a model source, ready to answer as long as this is open.

    Raises InputError for what does not exist.
    """
    precision = choose_precision()
    target = with_scheme(target, root)
    kind, _, rest = target.partition(":")
    if kind in EXAMPLES and kind != "run":
        folder = model_folder(target, root)
        loaded = load_model(folder, precision)
        model, tokenizer, ends = loaded.model, loaded.tokenizer, loaded.end_tokens
    else:
        run, reference = find_named(root, rest if kind == "run" else target)
        session = Session(experiment_of(run), run, stored_status(run.path).seed, Silent())
        learner = language_model(session.learner, "serving")
        model, folder = learner.shelf(run).trained(reference), learner.folder
        tokenizer, ends = learner.base.tokenizer, learner.base.end_tokens
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None) or UNBOUNDED
    renderer = make_renderer(tokenizer, rendering)
    sampler: Any = sampler_here(model, ends, precision.compute)
    yield Served(name or target, renderer, ends, limit, sampler, folder)
