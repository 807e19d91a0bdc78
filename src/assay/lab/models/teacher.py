"""The teacher of a distill stage: whether a student can learn from it, and what it is asked."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import InputError, within
from assay.experiment.stage_tables import DistillStage
from assay.lab.models.helper_models import endpoint_for, in_process
from assay.lab.models.language_learner import LanguageLearner, language_model, model_folder
from assay.lab.models.learner import Learner
from assay.models.load import check_loadable
from assay.models.supported import read_config, why_plain
from assay.rollout.engines.endpoint.client import Unanswered
from assay.rollout.engines.endpoint.openai_text import read_words
from assay.tasks.helper_model import HelperModel, NextWords, Tokens
from assay.train.likelihood import Tell

TRIED = "Is 12 + 30 = 42? Yes."
"""What a teacher behind an endpoint is asked about before the run."""
SAME_TOKENIZER = "their vocabularies differ: take a teacher with the student's tokenizer"


def teller(
    helpers: Mapping[str, HelperModel], stage: DistillStage, student: LanguageLearner
) -> Tell:
    """Asks the teacher of a stage, which is opened at the first question. Raises InputError where
    a teacher behind an endpoint tells a word that is another one here."""
    known = set[int]()

    def tell(contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        told = helpers[stage.teacher].read(contexts, answers, stage.loss_top_k)
        if told.told_SN is not None:
            texts = {n: text for n, text in told.texts.items() if n not in known}
            refuse_other(student, stage, int(told.told_SN.max()), texts)
            known.update(texts)
        return told

    return tell


def refuse_other(
    student: LanguageLearner, stage: DistillStage, most: int, texts: Mapping[int, str]
) -> None:
    """Raise InputError where tokens that a teacher told, up to the id `most`, or their texts are
    not the student's."""
    base, names, field = student.base, named(student, stage), f"model.{stage.teacher}.source"
    size = base.config.get_text_config().vocab_size
    problem = f"token {most} is absent to {names[0]}" if most >= size else ""
    if problem := problem or other_text(base.tokenizer, texts, names):
        raise InputError(problem, field=field, fix=SAME_TOKENIZER)


def other_text(tokenizer: Any, texts: Mapping[int, str], names: tuple[str, str]) -> str:
    """The first token whose text is another one here, in a line; "" for none."""
    for number in sorted(texts):
        own, theirs = tokenizer.decode([number]), texts[number]
        # Part of a character has no text of its own.
        if own != theirs and "\ufffd" not in own + theirs:
            return f"token {number} is {own!r} to {names[0]} and {theirs!r} to {names[1]}"
    return ""


def named(student: LanguageLearner, stage: DistillStage) -> tuple[str, str]:
    """Both models, for messages."""
    teacher = student.experiment.helpers[stage.teacher].source
    return f"the student {student.experiment.model}", f"the teacher {teacher}"


def check_teacher(learner: Learner, name: str, stage: DistillStage) -> None:
    """Raise InputError where the teacher of a stage has other words than the student, reads less or
    tells none, or the student is no language model."""
    student = language_model(learner, "distillation")
    spec, field = student.experiment.helpers[stage.teacher], f"model.{stage.teacher}.source"
    if why := why_plain(read_config(student.folder)):
        raise InputError(f"a student cannot be distilled on the plain path: {why}", field="model")
    if not in_process(spec):
        try_endpoint(student, stage)
        return
    with within(field):
        folder = model_folder(spec.source, student.root)
        config, tokenizer = check_loadable(folder)
        if why := why_plain(config):
            problem = f"a teacher on the plain path tells no distributions: {why}"
            raise InputError(problem, fix="ask it behind an endpoint")
    if difference := first_difference(student.base.tokenizer, tokenizer, named(student, stage)):
        raise InputError(difference, field=field, fix=SAME_TOKENIZER)
    if stage.loss_top_k is not None and stage.loss_top_k >= len(tokenizer):
        problem = f"the vocabulary has {len(tokenizer):,} words"
        raise InputError(problem, field=f"stage.{name}.loss_top_k", fix="omit it")
    reads = getattr(config, "max_position_embeddings", None)
    if reads is not None and stage.sampling.max_tokens > reads:
        problem = f"the teacher reads {reads} tokens at once"
        raise InputError(problem, field=f"stage.{name}.sampling.max_tokens", fix="allow fewer")


def try_endpoint(student: LanguageLearner, stage: DistillStage) -> None:
    """Raise InputError where a teacher behind an endpoint tells no words, or others than the
    student's. One that is only busy is left to the run, which asks it again."""
    endpoint = endpoint_for(stage.teacher, student.experiment.helpers[stage.teacher])
    tokens = tuple(student.base.tokenizer.encode(TRIED))
    assert stage.loss_top_k is not None  # the experiment's own check
    try:
        answer = endpoint.connections.wait(endpoint.likely_words(tokens, 1, stage.loss_top_k))
    except Unanswered as error:
        if error.passing:
            return
        fix = "ask a server of vLLM's kind, or for fewer words"
        raise InputError(str(error), field=f"model.{stage.teacher}.source", fix=fix) from error
    told = read_words(answer.text)
    refuse_other(student, stage, int(told.words_TN.max()), told.texts)


def first_difference(student: Any, teacher: Any, names: tuple[str, str]) -> str:
    """The first token, by its id, that two tokenizers have differently, in a line; "" for none."""
    ours, theirs = words_of(student), words_of(teacher)
    for number in sorted(ours.keys() | theirs.keys()):
        one, other = (words.get(number, "absent") for words in (ours, theirs))
        if one != other:
            return f"token {number} is {one} to {names[0]} and {other} to {names[1]}"
    return ""


def words_of(tokenizer: Any) -> dict[int, str]:
    """By id: each token as it is written, the text that it stands for, and whether it is special,
    for a message."""
    added = tokenizer.added_tokens_decoder
    written = {number: word for word, number in tokenizer.get_vocab().items()}
    texts = tokenizer.batch_decode([[n] for n in written], clean_up_tokenization_spaces=False)
    words = {}
    for (number, word), text in zip(written.items(), texts, strict=True):
        special = ", special," if number in added and added[number].special else ""
        words[number] = repr(word) + ("" if text == word else f" ({text!r})") + special
    return words
