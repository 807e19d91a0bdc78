"""A damaged tokenizer or chat template is refused with its file, and never changes a text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.models.supported import read_tokenizer
from tests.models.folders import CHAT, tiny_tokenizer

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_tokenizer(folder)
    assert str(caught.value).startswith(str(folder))
    return str(caught.value)


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"", b'{"a": "b', b"[1, 2]", b"\xff\xfe\x00"])
def test_a_file_that_is_no_json_object_is_named(folder: Path, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)
    told = refusal(folder)
    assert file in told and ": is n" in told


@pytest.mark.parametrize(
    "change",
    [
        lambda j: j["model"].update(vocab={}),
        lambda j: [j["model"]["vocab"].pop(k) for k in list(j["model"]["vocab"])[:90]],
        lambda j: j["model"]["vocab"].update(a=5),
    ],
    ids=["no words", "missing words", "two words of one id"],
)
def test_a_tokenizer_that_changes_plain_text_is_refused(folder: Path, change: Change) -> None:
    edit(folder / "tokenizer.json", change)
    assert "the tokenizer turns 'abcdef" in refusal(folder)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("tokenizer.json", lambda j: j["model"]["vocab"].update(a=-3)),
        ("tokenizer.json", lambda j: j["model"].update(type="Other")),
        ("tokenizer_config.json", lambda j: j.update(tokenizer_class="BertTokenizer")),
        ("tokenizer_config.json", lambda j: j.update(eos_token=5)),
        ("tokenizer_config.json", lambda j: j.update(added_tokens_decoder={"x": {"content": "a"}})),
    ],
)
def test_a_tokenizer_of_wrong_values_is_refused(folder: Path, file: str, change: Change) -> None:
    edit(folder / file, change)
    refusal(folder)


def edit(file: Path, change: Change) -> None:
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for m in messages %}{{ m['content'] }", "unexpected '}'"),
        ("{{ nope.there }}", "'nope' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "recursion"),
        ("hello<|im_end|>", "does not write the messages"),
    ],
)
def test_a_template_that_fails_is_refused_in_its_own_words(
    folder: Path, template: str, words: str
) -> None:
    (folder / "chat_template.jinja").write_text(template)
    said = refusal(folder)
    assert "chat_template.jinja: the chat template" in said
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "template",
    [
        CHAT,
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}"
        "{% if loop.last %}{% break %}{% endif %}{% endfor %}{{ tools | tojson }}",
        "{% if tools %}{{ raise_exception('no tools') }}{% endif %}{{ messages }}",
    ],
)
def test_a_template_that_writes_is_taken(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    assert read_tokenizer(folder).chat_template == template
