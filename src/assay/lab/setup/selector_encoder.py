"""Rows of the demos task as a selector reads them: unit vectors of the query and of its pool.

Features come from `models.embeddings`. Nothing is scored here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.data.episode import Context, Turn
from assay.data.hashing import canonical_json, sha256_text
from assay.data.renderings.rendering import Loss
from assay.data.row import ImagePart, Message, Row
from assay.errors import InputError
from assay.models.embeddings import (
    ENCODERS,
    WITH_IMAGES,
    combined,
    embed_images,
    embed_texts,
)
from assay.models.selectors.choice import Choice, FeatureTable, choice_of
from assay.tasks.demos.demonstrations import POOL, SHOTS, DemonstrationSet, set_of
from assay.tasks.demos.selections import picks_of, selection_text
from assay.tasks.task import Asked, Dialogue


class NoSelection(InputError):
    """What a selector cannot be asked or taught."""


@dataclass(frozen=True)
class Features:
    """Makes the features of messages, each once."""

    encoder: str
    """See `models.embeddings.ENCODERS`."""
    answers: bool
    """Whether a demonstration's features are the mean of its question's and its answer's."""
    _tables: dict[str, FeatureTable] = field(default_factory=dict, compare=False)
    _queries: dict[str, Tensor] = field(default_factory=dict, compare=False)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the encoder and of what it is given."""
        name = ENCODERS[self.encoder].fingerprint()
        return sha256_text(canonical_json([name, self.encoder, "mean" if self.answers else ""]))

    @property
    def width(self) -> int:
        """D."""
        return ENCODERS[self.encoder].width

    def table(self, found: DemonstrationSet) -> FeatureTable:
        """The features of a demonstration set. Raises what `embed_texts` does."""
        if found.fingerprint not in self._tables:
            asked = [demonstration.asked for demonstration in found.demonstrations]
            shown_ND = self.of_messages(asked, [message.content for message in asked])
            if self.answers:
                # One text of both would be nearly that of the question, which is longer.
                answers = [demonstration.answer for demonstration in found.demonstrations]
                shown_ND = combined(shown_ND, embed_texts(answers, self.encoder))
            fingerprint = sha256_text(canonical_json([self.fingerprint, found.fingerprint]))
            table = FeatureTable(fingerprint, shown_ND)
            self._tables[found.fingerprint] = table
        return self._tables[found.fingerprint]

    def query(self, message: Message, name: str) -> Tensor:
        """The unit vector (D) of a query; `name` is unlike that of every other content."""
        if name not in self._queries:
            self._queries[name] = self.of_messages([message], [message.content])[0]
        return self._queries[name]

    def of_messages(self, messages: Sequence[Message], texts: Sequence[str]) -> Tensor:
        """Unit vectors (N, D) of texts and, where the encoder reads them, of messages' images."""
        found_ND = embed_texts(texts, self.encoder)
        if self.encoder not in WITH_IMAGES:
            return found_ND
        shown = {n: images_of(message) for n, message in enumerate(messages)}
        pairs = [(n, image) for n, images in shown.items() for image in images]
        if not pairs:
            return found_ND
        vectors_MD = embed_images([image for _, image in pairs], self.encoder)
        owner_M = torch.tensor([n for n, _ in pairs])
        sums_ND = torch.zeros_like(found_ND).index_add(0, owner_M, vectors_MD)
        some_N = torch.tensor([bool(images) for images in shown.values()])
        return torch.where(some_N[:, None], combined(sums_ND, found_ND), found_ND)


def images_of(message: Message) -> list[ImagePart]:
    """The images of a message."""
    return [part for part in message.parts if isinstance(part, ImagePart)]


def content_name(message: Message) -> str:
    """The sha256 of all that features of a message are made of."""
    images = [image.sha256 for image in images_of(message)]
    return sha256_text(canonical_json([message.content, *images]))


@dataclass(frozen=True)
class SelectorEncoder:
    """See `lab.setup.learner.Encoder`; contexts are `Choice`s, actions demonstrations' numbers."""

    features: Features
    thinking: None = None
    stop: None = None

    @property
    def name(self) -> str:
        """The features' encoder."""
        return self.features.encoder

    @property
    def fingerprint(self) -> str:
        """That of the features."""
        return self.features.fingerprint

    def stopping_at(self, strings: tuple[str, ...]) -> "SelectorEncoder":
        """Raises NoSelection: a selection is no text."""
        raise NoSelection("a selection has no text that could hold a stop string", field="stop")

    def prompt(self, row: Row, asked: Asked) -> Choice:
        """The row's query and pool. Raises BadSelection for a row without."""
        table, query = self.features.table(set_of(row)), asked.messages[-1]
        name = content_name(query)
        vector_D = self.features.query(query, name)
        pool = tuple(row.extra[POOL])
        return Choice(row.id, name, pool, row.extra[SHOTS], table, vector_D)

    def turns(self, row: Row, messages: Sequence[Message], loss_on: Loss) -> tuple[Turn, ...]:
        """A stored selection. Raises BadSelection for one that the row does not allow."""
        picks = picks_of(row, messages[-1].content)
        choice = self.prompt(row, Asked(tuple(messages[:-1])))
        return (Turn(choice, picks, (True,) * len(picks)),)

    def environment(self, row: Row, dialogue: Dialogue) -> Any:
        """Raises NoSelection: a selector answers once."""
        raise NoSelection("a selector answers once", file=row.origin or None, field="task")

    def decode(self, actions: Sequence[int]) -> str:
        """The selection's text."""
        return selection_text(actions)

    def size(self, context: Context) -> int:
        """The candidates."""
        return len(choice_of(context).pool)

    def plain(self, context: Context) -> Mapping[str, Any]:
        """Everything that the choice depends on."""
        choice = choice_of(context)
        return {
            "query": choice.query,
            "asked": choice.asked,
            "pool": list(choice.pool),
            "shots": choice.shots,
            "features": choice.features.fingerprint,
        }

    def text(self, context: Context) -> str:
        """The query and its pool."""
        choice = choice_of(context)
        return f"query {choice.query}: pick {choice.shots} of {list(choice.pool)}"
