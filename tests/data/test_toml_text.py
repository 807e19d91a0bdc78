"""TOML text is read whole or refused with its line; no value in it can steer a terminal."""

import pytest

from assay.data.toml_text import LARGEST, TomlInvalid, load_toml, unusable_values


@pytest.mark.parametrize(
    "digits",
    ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 4000, "0o7" + "_7" * 5000, "0b" + "1" * 15000],
)
def test_an_integer_that_python_does_not_read_or_write_is_refused_with_its_line(digits) -> None:
    with pytest.raises(TomlInvalid, match="more than 4300 digits") as caught:
        load_toml(f"a = 12345\nb = [1, {{ c = {digits} }}]\n")
    assert caught.value.line == 2


@pytest.mark.parametrize("text", ["a = ", "a = 1\n[", "[" * 100_000, "a = " + "[" * 100_000])
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(TomlInvalid):
        load_toml(text)


@pytest.mark.parametrize(
    "value", [LARGEST + 1, -LARGEST - 2, 10**4000, "\x1b[31m", "\x07", "\x9b", "\x7f", "\udc80"]
)
def test_values_beyond_64_bits_and_control_characters_are_found_where_they_are(
    value: object,
) -> None:
    ((path, problem, _),) = unusable_values({"a": {"b": [1, value]}})
    assert path == ("a", "b", 1)
    assert problem.isprintable()
    assert len(problem) < 60


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("b = 1\n" + ".".join(["a"] * 3000) + " = 1", 2),
        ("# don't\n" + ".".join(["'a.b'"] * 200_000) + " = 1", 2),
        ("b = 'x'\n\n[" + " . ".join(["a"] * 65) + "]\nc = 1", 3),
        ("[" + ".".join(["a"] * 40) + "]\n" + ".".join(["b"] * 40) + " = 1", 2),
        ('b = """\n[\n"""\na = ' + "{a = " * 200 + "1" + "}" * 200, 4),
        ("a = [\n" + "[\n" * 99_999, 65),
    ],
)
def test_keys_and_brackets_too_deep_in_one_another_are_refused_at_once_with_their_line(
    text: str, line: int
) -> None:
    with pytest.raises(TomlInvalid, match="nested too deeply") as caught:
        load_toml(text)
    assert caught.value.line == line


def test_what_only_looks_deep_is_read() -> None:
    many = ", ".join(["{a.b = 1.5}"] * 100)
    text = f"a = [{many}]  # {'[.' * 99}\nb = '{'a.' * 99}{'[' * 99}'\n" + "[c]\n" * 1
    values = load_toml(text + "".join(f"[x{n}.y]\n" for n in range(99)))
    assert len(values["a"]) == 100 and values["b"].count("[") == 99
    assert load_toml(".".join(["a"] * 64) + " = 1")
