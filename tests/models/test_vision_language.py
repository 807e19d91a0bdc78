"""Image tokens are those that Transformers' own processors write, and are counted; what cannot be
read is refused before weights are."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.data.message_parts import images_in, picture_of
from assay.data.row import Message
from assay.errors import InputError, RunFailure
from assay.models.precision import choose_precision
from assay.models.vision_language import (
    LEAST_SHARED,
    VisionLanguage,
    check_vision_language,
    image_features,
    is_vision_language,
    load_vision_language,
    pieces_of,
    prefill,
    read_picture,
    reading,
)
from tests.models.vision_folders import KINDS, processed, real_image, save_vision_model, shown

pytest.importorskip("PIL.Image", reason="needs pillow")
FP32 = choose_precision("fp32", "cpu")
SIZES = ((0, 0, 64, 64), (0, 0, 64, 20), (10, 0, 30, 64), (0, 0, 16, 16), (0, 0, 64, 33))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        save_vision_model(folder / kind, kind)
    yield folder


@pytest.fixture(scope="module")
def loaded(root) -> dict[str, VisionLanguage]:
    return {kind: load_vision_language(root / kind, FP32) for kind in KINDS}


def pictures(model: VisionLanguage, *messages: Message) -> list[Any]:
    """Those of the messages, read for the model."""
    parts = images_in(messages)
    return [read_picture(model, part.sha256, picture_of(part)) for part in parts]


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_have_the_tokens_of_transformers_own_processor(loaded, kind) -> None:
    model = loaded[kind]
    for box in SIZES:
        asked = (
            Message("system", "Be brief."),
            shown(real_image(0, box), "What colour?"),
            Message("assistant", "red"),
            shown(real_image(1), "And\n\nhere?"),
        )
        images = pictures(model, *asked)
        tokens = model.renderer.prompt(asked, [image.written for image in images])
        expected = processed(kind, asked)["input_ids"][0].tolist()
        assert list(tokens) == expected
        assert tokens.count(model.image_token) == sum(image.tokens for image in images)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_has_as_many_features_as_its_grid_asks_for(loaded, kind) -> None:
    found = set()
    for box in SIZES:
        (image,) = pictures(loaded[kind], shown(real_image(0, box), "?"))
        assert len(image_features(loaded[kind], image)) == image.tokens
        found.add(image.tokens)
    assert len(found) > 1


@pytest.mark.parametrize("change", [-1, 1])
def test_a_grid_that_the_vision_model_does_not_follow_is_an_error(loaded, change) -> None:
    model = loaded["qwen2_5_vl"]
    (image,) = pictures(model, shown(real_image(0), "?"))
    wrong = type(image)(image.sha256, image.written, image.tokens + change, image.inputs)
    with pytest.raises(RunFailure, match=f"asks for {image.tokens + change} image tokens"):
        image_features(model, wrong)


def test_a_prompt_without_all_tokens_of_its_images_is_never_computed(loaded) -> None:
    model = loaded["smolvlm"]
    asked = (shown(real_image(0), "?"),)
    (image,) = pictures(model, *asked)
    tokens = model.renderer.prompt(asked, [image.written])
    features = [image_features(model, image)]
    last = len(tokens) - 1 - tokens[::-1].index(model.image_token)
    with pytest.raises(RunFailure, match="ask for 20 image tokens, the prompt holds 19"):
        reading(model, tokens[:last] + tokens[last + 1 :], [image], features, 0)


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=60).map(tuple)


@settings(max_examples=200, deadline=None)
@given(st.lists(tokens, min_size=1, max_size=8, unique=True), st.integers(0, 40))
def test_pieces_lay_every_sequence_whole_and_once(drawn, shared) -> None:
    """A beginning in common is laid once where it is long enough."""
    keys = sorted({(5,) * shared + each for each in drawn})
    laid: dict[int, list[tuple[int, int]]] = {n: [] for n in range(len(keys))}
    waiting, computed = [(0, len(keys), 0)], 0
    while waiting:
        first, stop, start = waiting.pop()
        for low, high, begin, end in pieces_of(keys, first, stop, start):
            assert begin == start and (high - low == 1 or end - begin >= LEAST_SHARED)
            assert len({each[:end] for each in keys[low:high]}) == 1
            computed += end - begin
            for n in range(low, high):
                laid[n].append((begin, end))
            waiting.append((low + (len(keys[low]) == end), high, end))
    for n, spans in laid.items():
        ends = [0, *(end for _, end in spans)]
        assert [begin for begin, _ in spans] == ends[:-1] and ends[-1] == len(keys[n])
    if shared >= LEAST_SHARED:
        assert computed <= sum(map(len, keys)) - (len(keys) - 1) * shared


def test_the_scores_of_a_batch_are_those_of_each_sequence_in_other_orders_and_sizes(
    loaded, monkeypatch
) -> None:
    model = loaded["qwen2_vl"]
    asked = [(shown(real_image(n % 3), "What is it? " * (1 + n % 2)),) for n in range(5)]
    readings = []
    for n, each in enumerate(asked):
        (image,) = pictures(model, *each)
        tokens = (*model.renderer.prompt(each, [image.written]), n)
        features = [image_features(model, image)]
        readings.append(reading(model, tokens, [image], features, len(tokens) - 1))

    def last_scores(order: list[int]) -> dict[int, torch.Tensor]:
        found = {}
        for batch, reached in prefill(model, [readings[n] for n in order]):
            for sequence, row in reached.done:
                found[order[batch[sequence]]] = reached.logits_RKV[row, -1]
        return found

    expected = {n: last_scores([n])[n] for n in range(5)}
    for most in (32, 2):
        monkeypatch.setattr("assay.models.vision_language.ROWS", most)
        for order in ([0, 1, 2, 3, 4], [3, 1, 4, 0, 2]):
            for n, scores in last_scores(order).items():
                torch.testing.assert_close(scores, expected[n], atol=2e-5, rtol=0)


def changed(root: Path, tmp_path: Path, kind: str, file: str, **values: Any) -> Path:
    """A copy of a folder with other values in one of its JSON files; None takes a key out."""
    folder = shutil.copytree(root / kind, tmp_path / kind)
    found = json.loads((folder / file).read_text()) | values
    kept = {key: value for key, value in found.items() if value is not None}
    (folder / file).write_text(json.dumps(kept))
    return folder


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"model_type": "llava"}, r"config\.json: model_type: 'llava' reads images in a way that"),
        ({"quantization_config": {}}, r"quantization_config: quantised weights can be neither"),
        ({"image_token_id": 900}, "has no token 900, which stands for images"),
    ],
)
def test_a_model_that_is_not_known_here_is_refused_with_its_field(
    root, tmp_path, values, problem
) -> None:
    folder = changed(root, tmp_path, "qwen2_5_vl", "config.json", **values)
    assert is_vision_language(folder)
    with pytest.raises(InputError, match=problem):
        check_vision_language(folder)


WINDOWED = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True}


def test_layers_with_a_window_and_a_larger_model_are_refused(root, tmp_path) -> None:
    for kind, change, problem in (
        ("qwen2_5_vl", WINDOWED, "a sliding window, whose caches cannot be shared"),
        ("smolvlm", {"num_hidden_layers": 40}, r"asks for [\d,]+ weights, and its files hold"),
    ):
        text = json.loads((root / kind / "config.json").read_text())["text_config"] | change
        folder = changed(root, tmp_path, kind, "config.json", text_config=text)
        with pytest.raises(InputError, match=problem):
            check_vision_language(folder)


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("preprocessor_config.json", "its image processor cannot be used"),
        ("chat_template.jinja", "has no chat template"),
        ("tokenizer.json", "has no tokenizer"),
        ("model.safetensors", "has no weights"),
    ],
)
def test_a_folder_without_one_of_its_files_is_refused(root, tmp_path, file, problem) -> None:
    folder = shutil.copytree(root / "smolvlm", tmp_path / "smolvlm")
    (folder / file).unlink()
    with pytest.raises(InputError, match=problem):
        check_vision_language(folder)


def test_the_template_of_an_older_folder_is_read(root, tmp_path) -> None:
    folder = shutil.copytree(root / "smolvlm", tmp_path / "smolvlm")
    source = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": source}))
    assert check_vision_language(folder)[1].source == source


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "ends an assistant message with"),
        ("{{ 'x' }}<|im_end|>", "does not write the messages"),
        (
            "{% for m in messages %}{% for c in m['content'] %}{{ c['text'] }}{% endfor %}"
            "<|im_end|>{% endfor %}",
            "does not write the images",
        ),
    ],
)
def test_a_template_that_leaves_something_out_is_refused(root, tmp_path, source, problem) -> None:
    folder = shutil.copytree(root / "smolvlm", tmp_path / "smolvlm")
    (folder / "chat_template.jinja").write_text(source)
    with pytest.raises(InputError, match=problem):
        check_vision_language(folder)


def test_bf16_weights_leave_the_frequencies_of_positions_exact(root) -> None:
    model = load_vision_language(root / "qwen2_5_vl", choose_precision("bf16", "cpu")).model
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    exact = {name: b.dtype for name, b in model.named_buffers() if "inv_freq" in name}
    assert exact and set(exact.values()) == {torch.float32}
