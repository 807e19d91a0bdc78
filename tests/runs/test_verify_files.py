"""`assay runs verify` finds each changed bit, lost file and stranger of a run, and no more."""

import os
import random
import shutil
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.run.resume import resume
from assay.runs.history import evaluation_records, read_description, samples_in
from assay.runs.records import read_scores
from assay.runs.run_directory import RunDirectory, check_checkpoint, runs_of
from assay.runs.verify_files import verify_run
from tests.cli.conftest import answer, call
from tests.from_files import run_from
from tests.lab.run.test_restore import SHORT, Stopping, everything, flip
from tests.tiny_labs import make_lab

FREE = ("lock", "status.json")
"""What changes all the time, so that nobody knows what it should be."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_from(make_lab(tmp_path_factory.mktemp("lab")), SHORT)


@pytest.fixture
def run(made: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(made.root, tmp_path, dirs_exist_ok=True)
    (run,) = runs_of(tmp_path, "tiny")
    return run


def verify(run: RunDirectory) -> list[tuple[str, str]]:
    return [(fault.kind, fault.file) for fault in verify_run(run).faults]


def test_a_sound_run_has_no_fault_and_every_file_a_checksum(run: RunDirectory) -> None:
    (run.path / "report.zh.md").touch()  # a page in another language, as `assay report` writes it
    found = verify_run(run)
    assert found.faults == () and found.without == ()
    files = {str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file()}
    own = {name for name in files if name.endswith("checksums.json")}
    changing = {*FREE, "metrics.jsonl", "checksums.jsonl", "report.zh.md"}
    assert found.compared == len(files - own - changing) > 60


def test_a_flipped_bit_in_any_file_is_found_there(run: RunDirectory) -> None:
    random.seed(18)
    for file in sorted(p for p in run.path.rglob("*") if p.is_file()):
        if file.name in FREE:
            continue
        before = file.read_bytes()
        changed = bytearray(before)
        changed[random.randrange(len(before))] ^= 1 << random.randrange(7)
        file.write_bytes(changed)
        name = file.relative_to(run.path).as_posix()
        if name == "checksums.jsonl":
            file.write_bytes(before.replace(b'"sha256": "', b'"sha256": "x', 1))
            assert [kind for kind, _ in verify(run)] == ["damaged"]
        else:
            assert ("damaged", name) in verify(run), name
        file.write_bytes(before)
    assert verify(run) == []


def test_lost_files_and_strangers_are_named(run: RunDirectory) -> None:
    (run.checkpoint("sft", 4) / "model.safetensors").unlink()
    run.samples("rl", 2).unlink()
    killed = run.samples("rl", 3)
    killed.rename(killed.with_name(f".{killed.name}.0123456789abcdef.part"))
    (run.path / "notes.txt").write_text("mine")
    (run.checkpoint("rl", 3) / "more.bin").touch()
    left = run.path / ".manifest.json.0123456789abcdef.part"
    left.touch()
    shutil.rmtree(run.checkpoint("sft", 2))
    assert verify(run) == [
        ("unknown", left.name),
        ("unknown", "checkpoints/rl/step-000003/more.bin"),
        ("missing", "checkpoints/sft/step-000002"),
        ("missing", "checkpoints/sft/step-000004/model.safetensors"),
        ("unknown", "notes.txt"),
        ("unknown", f"samples/rl/.{killed.name}.0123456789abcdef.part"),
        ("missing", "samples/rl/step-000002.parquet"),
    ]


def test_the_verb_prints_a_line_for_each_file_and_fails(run: RunDirectory) -> None:
    words = ("runs", "verify", "tiny", "--lab", run.root)
    sound = call(*words)
    assert sound.exit_code == 0 and "0 damaged, missing or unknown" in sound.stdout
    bad = run.checkpoint("sft", 6) / "model.safetensors"
    flip(bad)
    result = call(*words)
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("damaged: ")]
    assert line.startswith("damaged: checkpoints/sft/step-000006/model.safetensors: is damaged")
    (fault,) = answer(call(*words, "--json"))["result"]["faults"]
    assert fault["kind"] == "damaged" and fault["file"].endswith("model.safetensors")


def exchange(one: Path, other: Path) -> None:
    """Give each of two files or folders the other's name."""
    between = one.with_name(".between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def read(run: RunDirectory, path: Path) -> None:
    """What every reader of such a file or folder of a run goes through."""
    kind = path.relative_to(run.path).parts[0]
    if kind == "checkpoints":
        check_checkpoint(path if path.is_dir() else path.parent, "")
    elif kind == "samples":
        list(samples_in(path))
    elif path.suffix == ".parquet":
        evaluation = read_description(path.with_name("evaluation.json"))
        read_scores(run, evaluation, path.stem)
    else:
        evaluation_records(run)


def kinds(run: RunDirectory) -> dict[str, list[Path]]:
    """The files and folders of a run that are of one kind, of which each could be another's."""
    patterns = ("checkpoints/*/*", "samples/*/*", "evaluations/*/*.parquet")
    inner = {f"checkpoints/*/*/{p.name}" for p in run.checkpoint("rl", 3).iterdir() if p.is_file()}
    patterns = (*patterns, "evaluations/*/evaluation.json", *sorted(inner))
    return {each: sorted(run.path.glob(each)) for each in patterns}


def pairs(paths: list[Path]) -> Iterator[tuple[Path, Path]]:
    """All pairs of different content."""
    for one, other in combinations(paths, 2):
        if one.is_dir() or one.read_bytes() != other.read_bytes():
            yield one, other


def test_whatever_two_files_of_a_kind_are_exchanged_no_reader_takes_one_for_the_other(
    run: RunDirectory,
) -> None:
    counts: dict[str, int] = {}
    for kind, paths in kinds(run).items():
        counts[kind] = 0
        for one, other in pairs(paths):
            exchange(one, other)
            for path in (one, other):
                with pytest.raises(InputError) as refused:
                    read(run, path)
                said = str(refused.value)
                assert "\n" not in said and ("holds" in said or "damaged" in said), said
            exchange(one, other)
            counts[kind] += 1
        for path in paths:
            read(run, path)
    assert all([*counts.values()][:4]) and sum(counts.values()) > 80, counts
    assert verify(run) == []


def test_verify_names_every_file_that_lies_under_anothers_name(run: RunDirectory) -> None:
    """All of a kind moved on by one place: every one of them is named, with what it holds."""
    for paths in list(kinds(run).values())[:4]:
        for one, other in pairwise(paths):
            exchange(one, other)
    found = {fault.file: fault.problem for fault in verify_run(run).faults}
    for kind, paths in list(kinds(run).items())[:4]:
        names = [path.relative_to(run.path).as_posix() for path in paths]
        assert names and {*names} <= found.keys(), kind
        for name, held in zip(names, [*names[1:], names[0]], strict=True):
            assert found[name].startswith("holds"), name
            assert kind.endswith("json") or held in found[name], found[name]


@pytest.mark.parametrize("older", [False, True])
def test_a_copy_under_another_valid_name_is_named_and_refused(
    run: RunDirectory, older: bool
) -> None:
    """Also in a run without a list of checksums: what files say of themselves decides."""
    if older:
        (run.path / "checksums.jsonl").unlink()
    (key,) = {p.parent.name for p in run.evaluations.glob("test-*/evaluation.json")}
    copies = {
        "samples/rl/step-000003.parquet": ["samples/rl/step-000099.parquet"],
        f"evaluations/{key}/base.parquet": [
            f"evaluations/{key}/rl.step-000002.parquet",
            f"evaluations/{key[:-8]}01234567/base.parquet",
        ],
        "checkpoints/rl/step-000003": ["checkpoints/rl/step-000099", "checkpoints/sft/step-000003"],
        f"evaluations/{key}/evaluation.json": [f"evaluations/{key[:-8]}01234567/evaluation.json"],
    }
    before = verify(run)
    for source, targets in copies.items():
        for name in targets:
            target = run.path / name
            target.parent.mkdir(exist_ok=True)
            whole = (run.path / source).is_dir()
            (shutil.copytree if whole else shutil.copyfile)(run.path / source, target)
            with pytest.raises(InputError):
                read(run, target)
            assert ("damaged", name) in verify(run), name
            shutil.rmtree(target) if whole else target.unlink()
    (run.evaluations / f"{key[:-8]}01234567").rmdir()
    assert verify(run) == before


def stopped(made: RunDirectory, step: int) -> RunDirectory:
    """Another run of the lab, interrupted in `rl`."""
    with pytest.raises(KeyboardInterrupt):
        run_from(made.root / "tiny.toml", SHORT, new=True, observer=Stopping("rl", step))
    return runs_of(made.root, "tiny")[-1]


def test_a_run_whose_metrics_are_shorter_than_its_checkpoints_does_not_go_on(
    made: RunDirectory,
) -> None:
    run = stopped(made, 3)
    lines = run.metrics.read_text().splitlines(keepends=True)
    assert len(lines) == 6 + 3
    for kept, complaint in (
        (lines[:-2], "has 7 lines and had 8 when rl.step-000002 was made"),
        (lines[:1] + lines[2:], "has 8 lines|are not what they were"),
        (lines[:3], r"has 3 lines and had 8 when rl\.step|had 6 when sft\.step"),
        ([], "has 0 lines and had"),
    ):
        run.metrics.write_text("".join(kept))
        with pytest.raises(InputError, match=complaint):
            resume(run)
        assert ("damaged", "metrics.jsonl") in verify(run)
    run.metrics.write_text("".join(lines[:-1]))
    resume(run)
    assert everything(run.path)["metrics.jsonl"] == everything(made.path)["metrics.jsonl"]
    assert verify(run) == []


@pytest.mark.slow
def test_metrics_are_on_the_disk_before_the_checkpoint_that_needs_them(
    made: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[Path, int] = {}
    found: list[tuple[int, int]] = []
    fsync, rename = os.fsync, os.rename

    def spy(handle: int) -> None:
        synced[Path(f"/proc/self/fd/{handle}").readlink()] = os.fstat(handle).st_size
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        if Path(target).parents[1].name == "checkpoints":
            metrics = Path(target).parents[2] / "metrics.jsonl"
            found.append((synced[metrics], metrics.stat().st_size))
        rename(source, target)

    monkeypatch.setattr("os.fsync", spy)
    monkeypatch.setattr("os.rename", renamed)
    stopped(made, 3)
    assert len(found) == 4 and all(on_disk == size for on_disk, size in found)
