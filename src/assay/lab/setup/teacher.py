"""Teachers of distill stages: who is asked, and whether its words are the student's.

A teacher is a helper model; no weights are opened here before a stage asks it. One behind an
endpoint is asked about a short text before the run, which no ledger has.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import InputError, within
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import DistillStage
from assay.lab.setup.helper_models import endpoint_for, in_process
from assay.lab.setup.language_learner import language_model, model_folder
from assay.lab.setup.learner import Learner
from assay.models.load import check_loadable
from assay.rollout.engines.endpoint.client import Unanswered
from assay.rollout.engines.endpoint.openai_text import read_words
from assay.tasks.helper_model import HelperModel, NextWords, Tokens
from assay.train.distill import Tell

TRIED = "Is 12 + 30 = 42? Yes."
"""What a teacher behind an endpoint is asked about before the run."""
SAME_TOKENIZER = "their vocabularies differ: take a teacher with the student's tokenizer"


def teller(
    experiment: Experiment,
    helpers: Mapping[str, HelperModel],
    stage: DistillStage,
    learner: Learner,
) -> Tell:
    """Asks the teacher of a stage, which is opened at the first question. Raises InputError where
    a teacher behind an endpoint tells a word that is another one here."""
    known = set[int]()

    def tell(contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        told = helpers[stage.teacher].read(contexts, answers, stage.loss_top_k)
        if told.told_SN is not None:
            texts = {n: text for n, text in told.texts.items() if n not in known}
            refuse_other(experiment, stage, learner, int(told.told_SN.max()), texts)
            known.update(texts)
        return told

    return tell


def refuse_other(
    experiment: Experiment,
    stage: DistillStage,
    learner: Learner,
    most: int,
    texts: Mapping[int, str],
) -> None:
    """Raise InputError where tokens that a teacher told, up to the id `most`, or their texts are
    not the student's."""
    base, field = language_model(learner, "distillation").base, f"model.{stage.teacher}.source"
    names = named(experiment.model, experiment.helpers[stage.teacher].source)
    size = base.config.get_text_config().vocab_size
    found = f"token {most} is absent to {names[0]}" if most >= size else ""
    if found := found or other_text(base.tokenizer, texts, names):
        raise InputError(found, field=field, fix=SAME_TOKENIZER)


def other_text(tokenizer: Any, texts: Mapping[int, str], names: tuple[str, str]) -> str:
    """The first token whose text is another one here, in a line; "" for none."""
    for number in sorted(texts):
        own, theirs = tokenizer.decode([number]), texts[number]
        # Part of a character has no text of its own.
        if own != theirs and "\ufffd" not in own + theirs:
            return f"token {number} is {own!r} to {names[0]} and {theirs!r} to {names[1]}"
    return ""


def named(student: str, teacher: str) -> tuple[str, str]:
    """Both models, for messages."""
    return f"the student {student}", f"the teacher {teacher}"


def check_teacher(experiment: Experiment, name: str, stage: DistillStage, learner: Learner) -> None:
    """Raise InputError where the teacher of a stage has other words than the student, reads less or
    tells none, or the student is no language model."""
    student = language_model(learner, "distillation")
    spec, field = experiment.helpers[stage.teacher], f"model.{stage.teacher}.source"
    if not in_process(spec):
        try_endpoint(experiment, stage, learner)
        return
    with within(field):
        folder = model_folder(spec.source, student.root)
        config, tokenizer = check_loadable(folder)
    names = named(experiment.model, spec.source)
    if found := first_difference(student.base.tokenizer, tokenizer, names):
        raise InputError(found, field=field, fix=SAME_TOKENIZER)
    if stage.loss_top_k is not None and stage.loss_top_k >= len(tokenizer):
        problem = f"the vocabulary has {len(tokenizer):,} words"
        raise InputError(problem, field=f"stage.{name}.loss_top_k", fix="omit it")
    reads = getattr(config, "max_position_embeddings", None)
    if reads is not None and stage.sampling.max_tokens > reads:
        problem = f"the teacher reads {reads} tokens at once"
        raise InputError(problem, field=f"stage.{name}.sampling.max_tokens", fix="allow fewer")


def try_endpoint(experiment: Experiment, stage: DistillStage, learner: Learner) -> None:
    """Raise InputError where a teacher behind an endpoint tells no words, or others than the
    student's. One that is only busy is left to the run, which asks it again."""
    endpoint = endpoint_for(stage.teacher, experiment.helpers[stage.teacher])
    tokens = tuple(language_model(learner, "distillation").base.tokenizer.encode(TRIED))
    assert stage.loss_top_k is not None  # the experiment's own check
    try:
        said = endpoint.connections.wait(endpoint.likely_words(tokens, 1, stage.loss_top_k))
    except Unanswered as error:
        if error.passing:
            return
        fix = "ask a server of vLLM's kind, or for fewer words"
        raise InputError(str(error), field=f"model.{stage.teacher}.source", fix=fix) from error
    told = read_words(said.text)
    refuse_other(experiment, stage, learner, int(told.words_TN.max()), told.texts)


def first_difference(student: Any, teacher: Any, names: tuple[str, str]) -> str:
    """The first token, by its id, that two tokenizers have differently, in a line; "" for none."""
    ours, theirs = words_of(student), words_of(teacher)
    for number in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(number), theirs.get(number)
        if one != other:
            return f"token {number} is {shown(one)} to {names[0]} and {shown(other)} to {names[1]}"
    return ""


def words_of(tokenizer: Any) -> dict[int, tuple[str, str, bool]]:
    """By id: each token as it is written, the text that it stands for, and whether it is
    special."""
    added = tokenizer.added_tokens_decoder
    written = {number: word for word, number in tokenizer.get_vocab().items()}
    numbers = [*written]
    texts = tokenizer.batch_decode([[n] for n in numbers], clean_up_tokenization_spaces=False)
    return {
        number: (written[number], text, number in added and bool(added[number].special))
        for number, text in zip(numbers, texts, strict=True)
    }


def shown(word: tuple[str, str, bool] | None) -> str:
    """A token for a message."""
    if word is None:
        return "absent"
    written, text, special = word
    text = "" if text == written else f" ({text!r})"
    return f"{written!r}{text}" + (", special," if special else "")
