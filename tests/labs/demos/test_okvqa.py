"""OK-VQA's files, the official ones and JSON lines, become the same queries; what is wrong with a
row, an annotation or an image is one line with its place."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.data.row import ImagePart
from assay.data.splits import conversation_of
from assay.errors import InputError
from assay.labs.demos.demonstrations import conversation, set_of
from assay.labs.demos.outcomes import METRICS
from assay.labs.demos.task import TASK
from assay.tasks.task import BenchmarkOptions, read_source

JPEG = b"\xff\xd8\xff\xe0 picture "
TEN = ["cat"] * 6 + ["dog"] * 4
POOL = {"pool": 3, "shots": 2}


def rows(count: int, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Two questions about each image."""
    return [
        {"question_id": n, "image_id": n // 2, "question": f"what {n}?", "answers": TEN, **more}
        for n in range(first, first + count)
    ]


def write_lines(file: Path, found: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in found))
    return file.name


def write_official(folder: Path, side: str, found: list[dict[str, Any]]) -> dict[str, str]:
    """The two official files; the annotations in another order, as nothing promises one."""
    asked = [{k: row[k] for k in ("question_id", "image_id", "question")} for row in found]
    annotated = [
        {
            "question_id": row["question_id"],
            "image_id": row["image_id"],
            "answers": [
                {"answer_id": n, "answer": text, "raw_answer": "?", "answer_confidence": "yes"}
                for n, text in enumerate(row["answers"], 1)
            ],
        }
        for row in reversed(found)
    ]
    (folder / f"{side}_q.json").write_text(json.dumps({"info": {}, "questions": asked}))
    (folder / f"{side}_a.json").write_text(json.dumps({"annotations": annotated}))
    return {"questions": f"{side}_q.json", "annotations": f"{side}_a.json"}


def write_images(folder: Path, side: str, numbers: range) -> str:
    target = folder / side
    target.mkdir()
    for n in numbers:
        (target / f"COCO_{side}_{n:012d}.jpg").write_bytes(JPEG + bytes([n]))
    return side


def read(folder: Path, side: str = "train", **options: Any):
    return read_source(TASK, "okvqa", side, BenchmarkOptions({**POOL, **options}, folder)).rows


def refused(folder: Path, side: str = "train", **options: Any) -> str:
    with pytest.raises(InputError) as found:
        read(folder, side, **options)
    text = str(found.value)
    assert "\n" not in text
    return text.replace(f"{folder}/", "")


def test_official_files_and_json_lines_become_the_same_queries(tmp_path: Path) -> None:
    lines = read(tmp_path, questions=write_lines(tmp_path / "train.jsonl", rows(6)))
    official = read(tmp_path, **write_official(tmp_path, "train", rows(6)))
    kept = [[(r.id, r.messages, r.gold, r.extra) for r in each] for each in (lines, official)]
    assert kept[0] == kept[1]
    assert official[4].origin == f"{tmp_path / 'train_q.json'}:5"


def test_a_query_shows_its_image_and_picks_among_training_questions(tmp_path: Path) -> None:
    options = {
        "questions": write_lines(tmp_path / "val.jsonl", rows(2, first=8)),
        "images": write_images(tmp_path, "val2014", range(4, 5)),
        "train_questions": write_lines(tmp_path / "train.jsonl", rows(8)),
        "train_images": write_images(tmp_path, "train2014", range(4)),
    }
    (first, second) = read(tmp_path, "val", **options)
    demonstrations = set_of(first)
    assert len(demonstrations.demonstrations) == 8 and demonstrations.metric in METRICS
    assert {each.answer for each in demonstrations.demonstrations} == {"cat"}
    system, shown, answer, asked = conversation(first, first.extra["pool"][:1])
    assert system.role == "system" and answer.content == "cat"
    for message, side in ((shown, "train2014"), (asked, "val2014")):
        (image,) = (part for part in message.parts if isinstance(part, ImagePart))
        assert image.file is not None and image.file.parent == tmp_path / side
        assert message.content == message.parts[1].text  # type: ignore[union-attr]
    assert conversation_of(first) == conversation_of(second), "one image, one side of a split"
    assert first.gold == TEN


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"answers": []}, "train.jsonl:3: answers: question 2 has no answers (take the question"),
        ({"answers": ["cat", 3]}, "train.jsonl:3: answers[1]: is an integer, not a string"),
        ({"answers": None, "soft_label": {"a": "1"}}, "train.jsonl:3: soft_label.a: is a string"),
        ({"question_id": 1}, "train.jsonl:3: question_id: 1 is there twice"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_with_its_place(
    tmp_path: Path, broken: Mapping[str, Any], words: str
) -> None:
    found = rows(6)
    found[2] |= broken
    file = write_lines(tmp_path / "train.jsonl", found)
    assert refused(tmp_path, questions=file).startswith(words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda q, a: a.pop(), "q.json:1: question_id: question 0 has no annotation"),
        (lambda q, a: a[1].pop("answers"), "a.json:2: answers: question 4 has no answers"),
        (lambda q, a: a.append(a[0]), "a.json:7: question_id: 5 is there twice"),
    ],
)
def test_what_is_wrong_with_an_annotation_is_said_with_its_place(
    tmp_path: Path, change: Any, words: str
) -> None:
    options = write_official(tmp_path, "train", rows(6))
    files = {key: json.loads((tmp_path / file).read_text()) for key, file in options.items()}
    change(files["questions"]["questions"], files["annotations"]["annotations"])
    for key, file in options.items():
        (tmp_path / file).write_text(json.dumps(files[key]))
    assert refused(tmp_path, **options).startswith(f"train_{words}")


@pytest.mark.parametrize(
    ("side", "options", "words"),
    [
        ("train", {}, "options: OK-VQA is read by path, and no file of train questions is named"),
        ("train", {"train_images": "x"}, "options.train_images: the queries of okvqa:train are"),
        ("train", {"pool": 6}, "options.pool: a pool of 6 of the 5 demonstrations"),
    ],
)
def test_options_that_name_no_data_are_refused(
    tmp_path: Path, side: str, options: Mapping[str, Any], words: str
) -> None:
    file = write_lines(tmp_path / "train.jsonl", rows(6))
    named = {} if words.startswith("options: ") and side == "train" else {"questions": file}
    assert refused(tmp_path, side, **named, **options).startswith(words)


def test_real_rows_are_read_with_their_ten_answers(shared: Path) -> None:
    options = {"questions": "okvqa_val.jsonl", "train_questions": "okvqa_val.jsonl"}
    found = read(shared / "data/vqa", "val", **options)
    assert len(found) == 2523 and {len(row.gold) for row in found} == {10}
    assert all(set_of(row).numbers[row.id] not in row.extra["pool"] for row in found[:50])
