"""Data sets of the hub: the right split, the commit that it came from, and one line for a mistake.

What `datasets` itself reads is tested with the package and folders; a hub that answers is a stub.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from assay.data.files import with_scheme
from assay.data.hub_rows import HubSet, hub_records, open_set
from assay.data.loaded import sound
from assay.errors import InputError

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


@pytest.mark.parametrize(
    "text", ["Qwen/Qwen3-0.6B", "HuggingFaceTB/SmolLM2-135M", "meta-llama/Llama-3.2-1B", "a/b_c"]
)
def test_a_bare_name_is_one_of_the_hub(tmp_path: Path, text: str) -> None:
    assert with_scheme(text, tmp_path) == f"hf:{text}"


@pytest.mark.parametrize(
    "text",
    [
        *("hf:a/b", "path:a/b", "run:demo@sft.last", "gpt2", "./a/b", "/a/b", "~/a", "../a", "a/"),
        *("a/b/c", "/b", "a/b:c", "data/train.jsonl", "a/x.GGUF", "é/b", "a /b"),
    ],
)
def test_any_other_source_stays_as_it_is(tmp_path: Path, text: str) -> None:
    assert with_scheme(text, tmp_path) == text


def test_a_name_that_lies_here_is_refused_with_both_ways_to_say_it(tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match=r"write path:models/mine or hf:models/mine"):
        with_scheme("models/mine", tmp_path)
    assert with_scheme("hf:models/mine", tmp_path) == "hf:models/mine"
