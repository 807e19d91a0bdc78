"""Rows of the demos task as a selector reads them: unit vectors of the query and of its pool.

Features come from `models.embeddings`, or from a file of features that were made elsewhere. Nothing
is scored here.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.data.episode import Context, Turn
from assay.data.hashing import canonical_json, sha256_text
from assay.data.renderings.rendering import Loss
from assay.data.row import ImagePart, Message, Row
from assay.errors import InputError
from assay.labs.demos.demonstrations import (
    POOL,
    SHOTS,
    DemonstrationSet,
    picks_of,
    selection_text,
    set_of,
)
from assay.labs.demos.modules import Choice, FeatureTable, choice_of
from assay.models.embeddings import (
    ENDINGS,
    PATH,
    Precomputed,
    combined,
    content,
    embed_images,
    embed_texts,
    encoder_named,
    read_precomputed,
)
from assay.tasks.task import Asked, Dialogue


@dataclass(frozen=True)
class Features:
    """Makes the features of messages, each once, or looks them up."""

    encoder: str
    """Of `models.embeddings.ENCODERS`, a folder `path:DIR`, or a file of features
    `path:FILE.npz`."""
    answers: bool
    """Whether a demonstration's features are the mean of its question's and its answer's."""
    _tables: dict[str, FeatureTable] = field(default_factory=dict, compare=False)
    _queries: dict[str, Tensor] = field(default_factory=dict, compare=False)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the encoder and of what it is given."""
        how = "mean" if self.answers else ""
        if self.stored is not None:
            return sha256_text(canonical_json([self.stored.fingerprint, "stored", how]))
        # A folder is known by what it holds, not by where it lies.
        name = "path" if self.encoder.startswith(PATH) else self.encoder
        made_by = encoder_named(self.encoder).fingerprint()
        return sha256_text(canonical_json([made_by, name, how]))

    @cached_property
    def stored(self) -> Precomputed | None:
        """The features of a file, where the encoder is one. Raises InputError."""
        if not self.encoder.endswith(ENDINGS):
            return None
        file = Path(self.encoder.removeprefix(PATH))
        if self.answers:
            fix = "leave answers out, and write features of question and answer together"
            raise InputError("are used as they are", file=file, field="answers", fix=fix)
        return read_precomputed(file)

    @property
    def width(self) -> int:
        """D."""
        stored = self.stored
        return encoder_named(self.encoder).width if stored is None else stored.width

    def table(self, found: DemonstrationSet) -> FeatureTable:
        """The features of a demonstration set. Raises what `embed_texts` does."""
        if found.fingerprint not in self._tables:
            asked = [demonstration.asked for demonstration in found.demonstrations]
            ids = [demonstration.id for demonstration in found.demonstrations]
            shown_ND = self.of_messages(ids, asked)
            if self.answers:
                # One text of both would be nearly that of the question, which is longer.
                answers = [demonstration.answer for demonstration in found.demonstrations]
                shown_ND = combined(shown_ND, embed_texts(answers, self.encoder))
            fingerprint = sha256_text(canonical_json([self.fingerprint, found.fingerprint]))
            table = FeatureTable(fingerprint, shown_ND)
            self._tables[found.fingerprint] = table
        return self._tables[found.fingerprint]

    def query(self, row_id: str, message: Message, name: str) -> Tensor:
        """The unit vector (D) of a query; `name` is unlike that of every other content."""
        if name not in self._queries:
            self._queries[name] = self.of_messages([row_id], [message])[0]
        return self._queries[name]

    def of_messages(self, ids: Sequence[str], messages: Sequence[Message]) -> Tensor:
        """Unit vectors (N, D) of messages' texts and, where the encoder reads them, images; `ids`
        are what a file of features knows them by."""
        if self.stored is not None:
            return self.stored.of(ids, [plain_sha256(message) for message in messages])
        found_ND = embed_texts([message.content for message in messages], self.encoder)
        if not encoder_named(self.encoder).images:
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


def plain_sha256(message: Message) -> str:
    """What a file of features has for a message: the sha256 of its text in UTF-8 with the bytes of
    its images behind it."""
    data = message.content.encode() + b"".join(content(image) for image in images_of(message))
    return hashlib.sha256(data).hexdigest()


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
        """Raises InputError: a selection is no text."""
        raise InputError("a selection has no text that could hold a stop string", field="stop")

    def prompt(self, row: Row, asked: Asked) -> Choice:
        """The row's query and pool. Raises BadSelection for a row without."""
        table, query = self.features.table(set_of(row)), asked.messages[-1]
        name = content_name(query)
        vector_D = self.features.query(row.id, query, name)
        pool = tuple(row.extra[POOL])
        return Choice(row.id, name, pool, row.extra[SHOTS], table, vector_D)

    def turns(self, row: Row, messages: Sequence[Message], loss_on: Loss) -> tuple[Turn, ...]:
        """A stored selection. Raises BadSelection for one that the row does not allow."""
        picks = picks_of(row, messages[-1].content)
        choice = self.prompt(row, Asked(tuple(messages[:-1])))
        return (Turn(choice, picks, (True,) * len(picks)),)

    def environment(self, row: Row, dialogue: Dialogue) -> Any:
        """Raises InputError: a selector answers once."""
        raise InputError("a selector answers once", file=row.origin or None, field="task")

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
