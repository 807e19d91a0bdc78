"""easy-VQA's two sides share no image, and without images they share no question."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.data.leakage import overlap
from assay.data.loaded import DataError
from assay.data.row import ImagePart, Row
from assay.data.splits import conversation_of
from assay.tasks.demos import easy_vqa
from assay.tasks.demos.demonstrations import set_of
from assay.tasks.demos.outcomes import exact
from assay.tasks.demos.task import TASK
from assay.tasks.task import BenchmarkOptions, read_source

PNG = b"\x89PNG\r\n\x1a\n"
POOL = {"pool": 2, "shots": 1}
ENTRIES = {
    "train": [["what shape?", "circle", 0], ["is it red?", "no", 0], ["is it red?", "yes", 2]],
    "test": [["what shape?", "circle", 0], ["is it red?", "no", 1]],
}


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two questions about one image and one about another."""
    data = tmp_path / "easy_vqa" / "data"
    for side, entries in ENTRIES.items():
        (data / side / "images").mkdir(parents=True)
        (data / side / "questions.json").write_text(json.dumps(entries))
        for n in {image for *_, image in entries}:
            (data / side / "images" / f"{n}.png").write_bytes(PNG + f"{side}{n}".encode())
    monkeypatch.setattr(easy_vqa, "wheel_directory", lambda _: tmp_path)
    _forget()
    yield data
    _forget()


def _forget() -> None:
    easy_vqa.questions.cache_clear()
    easy_vqa.demonstrations.cache_clear()


def read(side: str, **options: Any) -> tuple[Row, ...]:
    return read_source(TASK, "easy-vqa", side, BenchmarkOptions({**POOL, **options})).rows


def image_of(row: Row) -> ImagePart:
    (found,) = (part for part in row.messages[0].parts if isinstance(part, ImagePart))
    return found


def test_a_query_shows_the_image_of_its_own_side(wheel: Path) -> None:
    train = read("train", pool=1)
    files = [image_of(row).file for row in train]
    assert files == [wheel / f"train/images/{n}.png" for n in (0, 0, 2)]
    assert [row.gold for row in train] == [["circle"], ["no"], ["yes"]]
    test = read("test")
    assert image_of(test[0]).file == wheel / "test/images/0.png"
    assert test[1].origin == f"{wheel / 'test/questions.json'}:2"


def test_questions_about_one_image_stay_on_one_side_of_a_split(wheel: Path) -> None:
    one, two, other = read("train", pool=1)
    assert conversation_of(one) == conversation_of(two) != conversation_of(other)
    assert conversation_of(read("test")[0]) != conversation_of(one), "image 0 of another side"


def test_the_same_words_about_another_image_are_another_question(wheel: Path) -> None:
    train, test = read("train", pool=1), read("test")
    assert overlap(train, test).train_ids == frozenset()
    assert overlap(train, train[:1]).train_ids == {train[0].id}


def test_a_missing_image_is_named_with_its_row(wheel: Path) -> None:
    (wheel / "test/images/1.png").unlink()
    with pytest.raises(DataError, match=r"test/questions\.json:2: image: .*/1\.png: no such image"):
        read("test")


def test_without_images_sides_are_told_apart_by_the_words() -> None:
    """With the package itself: 107 questions, all of them on both of its sides."""
    train, test = read("train", images=False, pool=16), read("test", images=False, pool=16)
    assert len(train) + len(test) == 107 and len(test) > 20
    assert overlap(train, test).train_ids == frozenset()
    assert not any(row.messages[0].parts for row in (*train, *test))


def test_without_images_every_answer_of_an_image_is_right() -> None:
    found = {row.messages[0].content: row.gold for row in read("train", images=False, pool=16)}
    said = [gold for content, gold in found.items() if content.startswith("Question: what")]
    assert said and all(len(gold) > 1 for gold in said)
    assert exact(said[0][1], said[0]).score == 1 and exact("yes", said[0]).score == 0


@pytest.mark.slow
def test_the_package_is_what_its_authors_say_it_is() -> None:
    queries = easy_vqa.questions("test", True)
    assert len(queries) == 9673 and len({query.conversation for query in queries}) == 1000
    assert sum(query.answers[0] in ("yes", "no") for query in queries) == 7136
    assert {len(query.answers) for query in queries} == {1}


def test_the_benchmark_is_the_test_side(wheel: Path) -> None:
    made = TASK.benchmarks["demos/easy-vqa"](BenchmarkOptions(POOL))
    assert [item.id for item in made.items] == ["easy-vqa-test-1", "easy-vqa-test-2"]
    assert set_of(made.items[0]).metric == "exact" and made.options["images"] is True
    assert len(set_of(made.items[0]).demonstrations) == 3
