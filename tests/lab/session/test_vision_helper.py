"""A helper model that reads images answers and scores as Transformers does, alone and batched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from assay.data.loaded import DataError
from assay.data.row import Message
from assay.errors import InputError
from assay.experiment.helper_tables import HelperSpec
from assay.lab.models.helper_models import HelperModels
from assay.lab.models.local_helper import VisionHelper
from assay.lab.models.metering import MeteredModel
from assay.models.precision import choose_precision
from assay.rl.policy import SampleKey, Sampling
from assay.tasks.helper_model import HelperFailed
from tests.few import few
from tests.models.vision_folders import (
    KINDS,
    image_of,
    processed,
    real_image,
    save_vision_model,
    shown,
)
from tests.scripted_helper import questions

pytest.importorskip("PIL.Image", reason="needs pillow")
FP32 = choose_precision("fp32", "cpu")
GREEDY = Sampling(0.0, 6)
SYSTEM = Message("system", "Answer in one word about what the image shows.")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("lab")
    for kind in KINDS:
        save_vision_model(folder / kind, kind, positions=512)
    yield folder


def helper(root: Path, kind: str, **fields: object) -> Any:
    spec = HelperSpec.model_validate({"source": f"path:{kind}", **fields})
    found = HelperModels({"frozen": spec}, root, FP32)["frozen"]
    assert isinstance(found, MeteredModel) and isinstance(found.model, VisionHelper)
    return found


def keys(count: int) -> list[SampleKey]:
    return [SampleKey(7, "row", sample) for sample in range(count)]


def selections() -> list[tuple[Message, ...]]:
    """Selections of two demonstrations for one query, one of another, and one without; images of
    several sizes."""
    images = [real_image(0), real_image(1, (0, 0, 64, 32)), real_image(2, (8, 0, 40, 64))]
    red, blue, round_ = (shown(image, "What colour is it?") for image in images)
    query = shown(real_image(3), "What shape is in the image?")
    return [
        (SYSTEM, red, Message("assistant", "red"), blue, Message("assistant", "blue"), query),
        (SYSTEM, red, Message("assistant", "red"), round_, Message("assistant", "grey"), query),
        (SYSTEM, blue, Message("assistant", "blue"), red, Message("assistant", "red"), query),
        (SYSTEM, red, Message("assistant", "red"), shown(images[2], "Is it a circle?")),
        (SYSTEM, query),
    ]


def generated(root: Path, kind: str, model: Any, **how: Any) -> Iterator[tuple[int, int, str]]:
    """Of each selection: its tokens, and the tokens and the text that `generate` writes alone."""
    plain: Any = AutoModelForImageTextToText.from_pretrained(root / kind)
    ends, tokenizer = model.model.loaded.end_tokens, model.model.loaded.renderer.tokenizer
    for messages in selections():
        inputs = processed(kind, messages)
        length = inputs["input_ids"].shape[1]
        whole = plain.generate(**inputs, **how, do_sample=False, eos_token_id=sorted(ends))
        written = whole[0, length:].tolist()
        yield length, len(written), tokenizer.decode([t for t in written if t not in ends])


@few("kind", KINDS)
def test_greedy_answers_are_those_of_generate_for_each_prompt_alone(root, kind):
    model = helper(root, kind)
    answers = model.answer(questions(selections(), GREEDY, keys(5)))
    found = [(a.prompt_tokens, a.completion_tokens, a.text) for a in answers if not a.failure]
    assert found == [*generated(root, kind, model, max_new_tokens=6)]
    assert len({answer.text for answer in answers}) > 2


@few("kind", KINDS)
@few("beams, most", [(3, 5), (2, 8)], fast=1)
def test_beams_are_those_of_generate_without_a_penalty_for_length(root, kind, beams, most):
    model = helper(root, kind, sampling={"beams": beams, "max_tokens": most})
    answers = model.answer(questions(selections(), model.sampling, keys(5)))
    greedy = model.answer(questions(selections(), Sampling(0.0, most), keys(5)))
    search = {"num_beams": beams, "length_penalty": 0.0, "max_new_tokens": most}
    texts = [text for _, _, text in generated(root, kind, model, **search)]
    assert [each.text for each in answers] == texts
    assert [each.text for each in answers] != [each.text for each in greedy]


def test_beams_are_refused_of_a_model_that_cannot_search(tmp_path):
    table = {"source": "openai:m", "price": "unknown", "sampling": {"beams": 3}}
    refused = r"model\.frozen\.sampling\.beams: only a model in this process that reads"
    with pytest.raises(InputError, match=refused):
        HelperModels({"frozen": HelperSpec.model_validate(table)}, tmp_path, FP32).check()


@few("kind", KINDS)
def test_scores_are_those_of_one_forward_for_each_pair(root, kind):
    model = helper(root, kind)
    plain: Any = AutoModelForImageTextToText.from_pretrained(root / kind)
    texts = ["circle", "red", "circles", "no", "a"]
    lead = "" if kind.startswith("qwen") else " "
    found = model.score(selections(), texts)
    for messages, text, logps in zip(selections(), texts, found, strict=True):
        inputs = processed(kind, messages)
        answer = model.model.loaded.renderer.tokenizer.encode(lead + text, add_special_tokens=False)
        ids = torch.cat([inputs["input_ids"], torch.tensor([answer])], dim=1)
        longer = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "mm_token_type_ids" in inputs:
            kinds = inputs["mm_token_type_ids"]
            longer["mm_token_type_ids"] = torch.nn.functional.pad(kinds, (0, len(answer)))
        with torch.no_grad():
            logits = plain(**{**inputs, **longer}).logits[0, -len(answer) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(answer)), answer]
        assert logps == pytest.approx(expected.tolist(), abs=2e-5)


def test_what_selections_begin_with_alike_is_computed_once(root):
    model = helper(root, "qwen2_5_vl")
    first, second = selections()[:2]
    model.score([first], ["a"])
    alone = model.usage.prompt_tokens
    model.score([second], ["b"])
    both = model.usage.prompt_tokens
    model.score([first, second], ["a", "b"])
    shared = 2 * both - model.usage.prompt_tokens
    # System message, the first demonstration with its image, and the head of the second one.
    demonstration = (
        len(model.model.prompt(first[:3], 0).tokens) - len("<|im_start|>assistant\n"[12:]) - 1
    )
    assert both - alone > shared > demonstration > 60
    # Four images of three selections went through the vision model once each.
    assert model.model.images.computed == 4


def test_a_prompt_that_is_too_long_fails_alone_and_counts_its_image_tokens(root):
    model = helper(root, "qwen2_5_vl")
    long = (shown(real_image(0), "x" * 480),)
    answers = model.answer(
        questions([long, (SYSTEM, shown(real_image(0), "What?"))], GREEDY, keys(2))
    )
    assert answers[0].failure.endswith(
        "tokens (16 of 1 images) and an answer of 6 are more than its 512"
    )
    assert answers[0].failure.startswith("frozen: ") and not answers[1].failure
    with pytest.raises(HelperFailed, match=r"\(16 of 1 images\)"):
        model.score([long], ["a"])
    assert model.usage.failures == 2


def test_an_image_that_cannot_be_read_stops_with_its_row(root):
    whole = real_image(0)
    for data in (whole[: len(whole) // 2], b"\x89PNG\r\n\x1a\nnothing"):
        with pytest.raises(DataError, match=r"^rows\.jsonl:3: messages\[0\]\.content\[0\]\.image_"):
            helper(root, "smolvlm").answer(questions([(shown(data, "What?"),)], GREEDY, keys(1)))


def test_a_message_cannot_spell_an_image(root):
    model = helper(root, "qwen2_5_vl")
    text = "Is <|image_pad|> an image?"
    (answer,) = model.answer(questions([(shown(real_image(0), text),)], GREEDY, keys(1)))
    token = model.model.loaded.image_token
    assert not answer.failure
    assert model.model.prompt((shown(real_image(0), text),), 0).tokens.count(token) == 16


def test_the_fingerprint_knows_weights_template_and_image_sizes(root, tmp_path):
    first = helper(root, "smolvlm").fingerprint
    save_vision_model(tmp_path / "smolvlm", "smolvlm", positions=512)
    assert helper(tmp_path, "smolvlm").fingerprint == first
    settings = tmp_path / "smolvlm" / "preprocessor_config.json"
    settings.write_text(settings.read_text().replace('"longest_edge": 32', '"longest_edge": 48'))
    changed = helper(tmp_path, "smolvlm").fingerprint
    assert changed != first and changed.split()[0] == first.split()[0]


def test_a_rendering_that_writes_no_images_is_refused_before_a_run(root):
    spec = HelperSpec.model_validate({"source": "path:smolvlm", "rendering": "hermes"})
    with pytest.raises(InputError, match=r"^model\.frozen\.rendering: 'hermes' writes no images"):
        HelperModels({"frozen": spec}, root, FP32).check()


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_the_turn_is_scored_behind_the_answer(root, kind):
    model, asked = helper(root, kind), [selections()[4]]
    (bare,), (ended,) = model.score(asked, ["red"]), model.score(asked, ["red"], ended=True)
    end = "<|im_end|>" if kind.startswith("qwen") else "<end_of_utterance>"
    token = model.model.loaded.renderer.tokenizer.convert_tokens_to_ids(end)
    assert model.model.loaded.renderer.answer_end == (token,)
    assert ended[:-1] == pytest.approx(bare, abs=1e-5) and len(ended) == len(bare) + 1


def test_what_images_became_is_let_go_when_there_are_too_many(root, monkeypatch):
    model = helper(root, "smolvlm")
    expected = model.score(selections(), ["a"] * 5)
    size = model.model.images.features(model.model.images.image(image_of(real_image(0)))).nbytes
    # Room for one image, and one that is being computed.
    monkeypatch.setattr("assay.lab.models.local_helper.FEATURE_BYTES", size)
    small = helper(root, "smolvlm")
    for n, messages in enumerate(selections()):
        assert small.score([messages], ["a"])[0] == pytest.approx(expected[n], abs=1e-5)
    kept = [kept for _, kept in small.model.images.read.values() if kept is not None]
    assert sum(each.nbytes for each in kept) <= size
    assert small.model.images.computed > model.model.images.computed
