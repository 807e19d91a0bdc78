"""A bare OWNER/NAME is a name of the hub wherever `hf:` is; what lies here has to say so."""

from pathlib import Path

import pytest

from assay.data.hub_names import with_scheme
from assay.errors import InputError


@pytest.mark.parametrize(
    "text", ["Qwen/Qwen3-0.6B", "HuggingFaceTB/SmolLM2-135M", "meta-llama/Llama-3.2-1B", "a/b_c"]
)
def test_a_bare_name_is_one_of_the_hub(tmp_path: Path, text: str) -> None:
    assert with_scheme(text, tmp_path) == f"hf:{text}"


@pytest.mark.parametrize(
    "text",
    [
        *("hf:a/b", "path:a/b", "run:demo@sft.last", "demo@sft.last", "gpt2", "./a/b", "/a/b"),
        *(
            "~/a",
            "../a",
            "a/b/c",
            "a/",
            "/b",
            "a/b:c",
            "data/train.jsonl",
            "a/x.GGUF",
            "é/b",
            "a /b",
        ),
    ],
)
def test_any_other_source_stays_as_it_is(tmp_path: Path, text: str) -> None:
    assert with_scheme(text, tmp_path) == text


def test_a_name_that_lies_here_is_refused_with_both_ways_to_say_it(tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match=r"write path:models/mine or hf:models/mine"):
        with_scheme("models/mine", tmp_path)
    assert with_scheme("hf:models/mine", tmp_path) == "hf:models/mine"
