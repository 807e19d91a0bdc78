"""A helper model in this process answers and scores as Transformers does, from many threads."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, MistralConfig, MistralForCausalLM

from assay.data.loaded import DataError
from assay.data.row import ImagePart, Message, TextPart
from assay.experiment.helper_tables import HelperSpec
from assay.lab.models import local_helper
from assay.lab.models.helper_models import HelperModels
from assay.lab.models.local_helper import JointCalls, LocalHelper
from assay.lab.models.metering import MeteredModel
from assay.labs.demos.demonstrations import (
    Demonstration,
    DemonstrationSet,
    Query,
    conversation,
    query_row,
)
from assay.labs.demos.outcomes import Selection
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.rl.policy import SampleKey, Sampling
from assay.tasks.helper_model import HelperFailed
from tests.models.folders import VOCABULARY, save_tiny_model, tiny_tokenizer
from tests.scripted_helper import questions
from tests.tiny import generated

FP32 = choose_precision("fp32", "cpu")
GREEDY = Sampling(0.0, 6)
MODELS = ["model", "windowed"]
"""Of the packed path and of the plain one."""
QUESTIONS = ["1 + 2 = ?", "2 + 2 = ?", "What is 2 + 2?", "1 + 2 = ?"]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("lab")
    save_tiny_model(folder / "model", positions=256)
    save_windowed_model(folder / "windowed")
    yield folder


def save_windowed_model(folder: Path) -> None:
    """A model of the plain path."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        eos_token_id=256,
        sliding_window=9,
    )
    MistralForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def helper(root: Path, **fields: object) -> Any:
    spec = HelperSpec.model_validate({"source": "path:model", **fields})
    found = HelperModels({"small": spec}, root, FP32)["small"]
    assert isinstance(found, MeteredModel) and isinstance(found.model, LocalHelper)
    return found


def asked(text: str) -> tuple[Message, ...]:
    return (Message("system", "Be brief."), Message("user", text))


def keys(count: int) -> list[SampleKey]:
    return [SampleKey(7, "row", sample) for sample in range(count)]


def prompt_of(root: Path, text: str) -> list[int]:
    """The prompt as Transformers' own chat template writes it."""
    tokenizer = AutoTokenizer.from_pretrained(root / "model")
    messages = [{"role": m.role, "content": m.content} for m in asked(text)]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


@pytest.mark.parametrize("name", MODELS)
def test_greedy_answers_are_those_of_generate(root, name):
    loaded = load_model(root / name, FP32)
    model = helper(root, source=f"path:{name}")
    answers = model.answer(questions([asked(text) for text in QUESTIONS], GREEDY, keys(4)))
    for text, answer in zip(QUESTIONS, answers, strict=True):
        prompt = prompt_of(root, text)
        expected = generated(loaded.model, tuple(prompt), loaded.end_tokens, 6)
        assert answer.completion_tokens == len(expected)
        assert answer.prompt_tokens == len(prompt)
        ends = [token for token in expected if token not in loaded.end_tokens]
        assert answer.text == loaded.tokenizer.decode(ends)


@pytest.mark.parametrize("name", MODELS)
def test_the_table_says_where_an_answer_stops(root, name):
    drawn, question = {"temperature": 1.0, "max_tokens": 32}, [asked(QUESTIONS[0])]
    whole = helper(root, source=f"path:{name}", sampling=drawn)
    (said,) = whole.answer(questions(question, whole.sampling, keys(1)))
    stop = next(letter for letter in said.text[1:] if letter.isascii() and letter.isalnum())
    model = helper(root, source=f"path:{name}", sampling={**drawn, "stop": [stop]})
    (cut,) = model.answer(questions(question, model.sampling, keys(1)))
    assert cut.text == said.text.partition(stop)[0] and cut.ended == "stop"
    assert (cut.completion_tokens or 0) < (said.completion_tokens or 0)
    assert helper(root, sampling={"min_p": 0.25}).sampling.min_p == 0.25


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_a_plain_forward_per_pair(root, name):
    texts = ["3", "four", "it is 4", ""]
    found = helper(root, source=f"path:{name}").score([asked(text) for text in QUESTIONS], texts)
    tokenizer = AutoTokenizer.from_pretrained(root / "model")
    model = AutoModelForCausalLM.from_pretrained(root / name)
    for question, text, logps in zip(QUESTIONS, texts, found, strict=True):
        prompt, answer = prompt_of(root, question), tokenizer(text)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(answer)), answer]
        assert logps == pytest.approx(expected.tolist(), abs=2e-5)


def selections(queries: int, instruction: str = "Answer in one word. " * 4) -> list[Selection]:
    """Every selection of one demonstration or two of four, for some queries."""
    given = tuple(
        Demonstration(f"d{n}", Message("user", f"{n} + {n} = ?"), str(2 * n)) for n in range(4)
    )
    found = DemonstrationSet("sums", instruction, given)
    rows = [
        query_row(
            found, Query(f"q{n}", Message("user", f"{n} + 9 = ?"), (str(n + 9),)), range(4), 2
        )
        for n in range(queries)
    ]
    picks = [(one, *rest) for one in range(4) for rest in ((), ((one + 1) % 4,))]
    return [(row, each) for row in rows for each in picks]


def laid(root: Path, asked: Sequence[Selection]) -> tuple[list[tuple[int, ...]], int]:
    """The prompts of selections, and the tokens of their prefix tree."""
    renderer = helper(root, source="path:model").model.weights.renderer
    prompts = [renderer.prompt(conversation(row, picks)) for row, picks in asked]
    return prompts, len(
        {prompt[:length] for prompt in prompts for length in range(1, 1 + len(prompt))}
    )


def test_instruction_and_demonstrations_are_computed_once_for_all_selections(root):
    """Every beginning that prompts have in common is one path of the prefix tree: the instruction
    of all queries, the first demonstration of selections, and both of them of several queries."""
    asked = selections(3)
    prompts, distinct = laid(root, asked)
    model = helper(root, source="path:model")
    model.score([conversation(row, picks) for row, picks in asked], ["1"] * len(asked))
    # An answer of one token is predicted from its prompt and not read itself.
    assert model.usage.prompt_tokens == distinct < sum(map(len, prompts)) / 2


def test_images_are_refused_by_a_model_of_text_with_their_row(root):
    part = ImagePart("0" * 64, "image/png", data=b"", origin=("rows.jsonl", 3, "messages[0]"))
    shown = (Message("user", "What?", parts=(part, TextPart("What?"))),)
    for ask in (
        lambda model: model.answer(questions([shown], GREEDY, keys(1))),
        lambda model: model.score([shown], ["x"]),
    ):
        with pytest.raises(DataError, match=r"^rows\.jsonl:3: messages\[0\]: an image, which"):
            ask(helper(root))


def test_requests_that_are_too_long_fail_alone(root):
    model = helper(root)
    answers = model.answer(questions([asked("x" * 300), asked("1")], GREEDY, keys(2)))
    assert answers[0].failure == "small: 338 tokens and an answer of 6 are more than its 256"
    assert not answers[1].failure
    with pytest.raises(HelperFailed, match="are more than its 256"):
        model.score([asked("x" * 300)], ["1"])
    assert model.usage.failures == 2


def test_threads_get_their_own_answers_in_few_batches(root, monkeypatch):
    batches: list[int] = []
    sample = local_helper.sample_turns

    def counted(model, prompts, *rest):
        batches.append(len(prompts))
        return sample(model, prompts, *rest)

    model = helper(root)
    expected = [model.answer(questions([asked(str(n))], GREEDY, keys(1)))[0] for n in range(24)]
    monkeypatch.setattr(local_helper, "sample_turns", counted)
    ready = threading.Barrier(24)

    def ask(n: int) -> object:
        ready.wait()
        return model.answer(questions([asked(str(n))], GREEDY, keys(1)))[0]

    with ThreadPoolExecutor(24) as threads:
        assert [*threads.map(ask, range(24))] == expected
    assert sum(batches) == 24 and len(batches) < 12


def test_one_thread_computes_for_all_callers():
    """Each further one would keep memory of its own."""
    seen: set[int] = set()

    def notes(items: list[int]) -> list[int]:
        seen.add(threading.get_ident())
        return items

    shared = threading.Lock(), ThreadPoolExecutor(1)
    asks, scores = JointCalls(notes, *shared), JointCalls(notes, *shared)
    callers = [
        threading.Thread(target=calls, args=([n],)) for n in range(4) for calls in (asks, scores)
    ]
    for caller in callers:
        caller.start()
        caller.join()
    assert asks([1, 2]) == [1, 2]
    assert len(seen) == 1 and threading.get_ident() not in seen


def test_an_error_reaches_every_caller_of_the_batch():
    def fails(items: list[int]) -> list[int]:
        raise RuntimeError(f"no {len(items)}")

    calls = JointCalls(fails, threading.Lock(), ThreadPoolExecutor(1))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no 3"):
            calls([1, 2, 3])


def test_the_fingerprint_knows_weights_and_rendering(root):
    loaded = load_model(root / "model", FP32)
    plain, hermes = helper(root), helper(root, rendering="hermes")
    assert plain.fingerprint.split()[0] == loaded.fingerprint == hermes.fingerprint.split()[0]
    assert helper(root, rendering="template").fingerprint != hermes.fingerprint
