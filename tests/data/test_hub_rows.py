"""Data sets of the hub: the right split, the commit that it came from, and one line for a mistake.

What `datasets` itself reads is tested with the package and folders; a hub that answers is a stub.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from assay.data.hub_rows import HubSet, hub_records, open_set
from assay.data.loaded import sound
from assay.data.parquet import read_parquet
from assay.errors import InputError
from assay.experiment.data_tables import DataSpec
from assay.lab.setup.manifest import opened_sets
from assay.lab.setup.prepare import load_rows
from assay.tasks.task import task

ROWS = [{"question": f"{n} + 1?", "answer": str(n + 1), "note": None} for n in range(300)]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Rows:
    """What is used of a `datasets.Dataset`."""

    _fingerprint = "f1"

    def __init__(self, rows: list[dict[str, Any]]):
        self.table = pa.Table.from_pylist(rows)

    def with_format(self, kind: str) -> "Rows":
        assert kind == "arrow"
        return self

    def iter(self, batch_size: int) -> Any:
        for start in range(0, self.table.num_rows, batch_size):
            yield self.table.slice(start, batch_size)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[Any, ...]]]:
    """A hub with the data set `me/sums`; returns what was asked of it."""
    asked: list[tuple[Any, ...]] = []
    stub: Any = ModuleType("datasets")

    def load_dataset_builder(name: str, config: str | None, **given: Any) -> SimpleNamespace:
        asked.append((name, config, given["revision"]))
        if name != "me/sums":
            raise stub.exceptions.DatasetsError(f"Dataset '{name}'\ndoesn't exist")
        splits = {"train": Rows(ROWS), "test": Rows(ROWS[:3])}
        return SimpleNamespace(
            hash=COMMIT, download_and_prepare=lambda: None, as_dataset=lambda: splits
        )

    stub.disable_progress_bars = lambda: None
    stub.load_dataset_builder = load_dataset_builder
    stub.exceptions = SimpleNamespace(DatasetsError=type("DatasetsError", (Exception,), {}))
    monkeypatch.setitem(sys.modules, "datasets", stub)
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    open_set.cache_clear()
    yield asked
    open_set.cache_clear()


def test_rows_of_a_split_come_in_their_order_with_the_commit(hub, tmp_path: Path) -> None:
    wanted = HubSet("me/sums", "main", "train", "v1")
    records = list(sound(hub_records(wanted, tmp_path)))
    assert [record.value for record in records] == [
        {name: value for name, value in row.items() if value is not None} for row in ROWS
    ]
    assert records[-1].origin == "hf:me/sums:300"
    assert open_set(wanted, tmp_path).revision == COMMIT
    assert hub == [("me/sums", "main", "v1")]


def test_columns_and_formats_apply_to_the_hub_as_to_files(hub, tmp_path: Path) -> None:
    table = {
        "source": "hf:me/sums",
        "hub": {"split": "test"},
        "format": "prompt_answer",
        "columns": {"prompt": "question"},
    }
    rows = load_rows(DataSpec.model_validate(table), task("math"), tmp_path).rows
    assert [(row.prompt[0].content, row.gold) for row in rows] == [
        ("0 + 1?", "1"),
        ("1 + 1?", "2"),
        ("2 + 1?", "3"),
    ]


def test_the_manifest_says_which_commit_was_read(hub, tmp_path: Path) -> None:
    sums = DataSpec.model_validate(
        {"source": "hf:me/sums", "hub": {"split": "test"}, "format": "prompt_answer"}
    )
    file = DataSpec(source="path:x.jsonl", format="messages")
    session: Any = SimpleNamespace(
        experiment=SimpleNamespace(data={"sums": sums, "file": file}),
        run=SimpleNamespace(root=tmp_path),
    )
    assert opened_sets(session) == {"sources": {"sums": {"revision": COMMIT, "fingerprint": "f1"}}}
    session.experiment.data = {"file": file}
    assert opened_sets(session) == {}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (HubSet("me/sums", split="tset"), r"hub\.split: .*no split 'tset' .*mean 'test'"),
        (HubSet("me/sums"), r"hub\.split: .*several splits \(name one of train, test"),
        (HubSet("me/smus"), r"hf:me/smus: Dataset 'me/smus' doesn't exist"),
    ],
)
def test_what_the_hub_does_not_have_is_said_in_one_line(
    hub, tmp_path: Path, wanted: HubSet, message: str
) -> None:
    with pytest.raises(InputError, match=message) as found:
        open_set(wanted, tmp_path)
    assert "\n" not in str(found.value)


def test_without_the_package_its_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    open_set.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'assay-lab\[hf\]'"):
        open_set(HubSet("me/sums"), tmp_path)


@pytest.mark.slow
def test_the_real_package_reads_what_it_saved_and_folders_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    open_set.cache_clear()
    rows = [{**row, "tags": ["a", "b"], "meta": {"level": n}} for n, row in enumerate(ROWS)]
    made = datasets.Dataset.from_list(rows)
    shuffled = made.shuffle(seed=1).select(range(7))
    shuffled.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=made, test=shuffled).save_to_disk(tmp_path / "two")
    (tmp_path / "files").mkdir()
    made.to_json(tmp_path / "files" / "train.jsonl")
    shuffled.to_json(tmp_path / "files" / "test.jsonl")

    def read(name: str, split: str | None = None) -> list[Any]:
        found = sound(hub_records(HubSet(name, split=split), tmp_path))
        return [record.value["meta"]["level"] for record in found]

    order = [row["meta"]["level"] for row in shuffled]
    assert read("one") == read("two", "test") == read("files", "test") == order
    assert read("two", "train") == read("files", "train") == list(range(300))
    first = next(iter(sound(hub_records(HubSet("one"), tmp_path)))).value
    assert first["tags"] == ["a", "b"] and "note" not in first
    known = open_set(HubSet("one"), tmp_path).fingerprint
    open_set.cache_clear()
    assert known and open_set(HubSet("one"), tmp_path).fingerprint == known
    for wanted, message in (
        (HubSet("one", split="train"), "without splits"),
        (HubSet("two", split="tain"), "mean 'train'"),
        (HubSet("files", split="tain"), "mean 'train'"),
        (HubSet("nobody/nothing"), "hf:nobody/nothing: "),
    ):
        with pytest.raises(InputError, match=message) as found:
            open_set(wanted, tmp_path)
        assert "\n" not in str(found.value)


@pytest.mark.slow
def test_columns_of_mixed_types_are_read_as_the_real_package_wrote_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", minversion="4.7")
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    open_set.cache_clear()
    call = {"name": "f", "arguments": {"city": "Oslo", "day": None}}
    rows = [
        {"prompt": "?", "answer": "Paris", "messages": [{"role": "assistant", "calls": [call]}]},
        {"prompt": "3 + 4?", "answer": 7, "messages": [{"role": "user", "calls": "none"}]},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(lines)
    made = datasets.load_dataset(
        "json", data_files=str(tmp_path / "a.jsonl"), split="train", cache_dir=str(tmp_path / "c")
    )
    assert [*made] == rows
    made.save_to_disk(tmp_path / "saved")
    made.to_parquet(tmp_path / "a.parquet")
    found = [
        sound(hub_records(HubSet("saved"), tmp_path)),
        sound(read_parquet(tmp_path / "a.parquet")),
    ]
    assert [[record.value for record in each] for each in found] == [rows, rows]
