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
