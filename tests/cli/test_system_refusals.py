"""A full disk, missing rights, folders for files: one line with path and remedy, no traceback."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from assay.cli.output import EXHAUSTED, executing, foreseen
from assay.errors import InputError, RunFailure
from tests.cli.conftest import TinyLab, assert_one_line, call, run_code, spawn

SHORT = ("--set", "stage.sft.steps=2", "--set", "stage.rl.steps=1")
NOBODY = 65534


def error_of(work) -> Exception:
    """The error that a call really ends with."""
    with pytest.raises(Exception) as caught:
        work()
    return caught.value


def sqlite_of(path: Path):
    import sqlite3

    sqlite3.connect(path).execute("CREATE TABLE a (b)")


def test_what_the_system_refuses_names_the_path_and_a_remedy(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("x")
    found = {
        tmp_path: lambda: tmp_path.write_text("x"),
        file / "inner": lambda: (file / "inner").write_text("x"),
        file: file.mkdir,
        tmp_path / ("n" * 300): lambda: (tmp_path / ("n" * 300)).write_text("x"),
    }
    for path, work in found.items():
        known = foreseen(error_of(work), Path("elsewhere"))
        assert isinstance(known, InputError) and known.file == path and known.fix, path
    known = foreseen(error_of(lambda: sqlite_of(tmp_path)), tmp_path)
    assert isinstance(known, InputError) and known.file == tmp_path


def test_a_full_disk_is_a_failure_and_keeps_no_traceback(lab: TinyLab):
    full = pytest.raises(RunFailure, match=r"No space left on device \(free some space")
    with full as caught, executing(lab.root, "tiny"):
        Path("/dev/full").write_text("x")
    assert caught.value.exit_code == 1 and not list(lab.root.rglob("traceback*"))


@pytest.mark.parametrize(
    "said",  # by pyarrow and by the Rust of safetensors
    [
        OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
        RuntimeError("Error while serializing: I/O error: No space left (os error 28)"),
    ],
)
def test_a_full_disk_is_known_however_a_library_says_it(said: Exception, tmp_path: Path):
    known = foreseen(said, tmp_path)
    assert isinstance(known, RunFailure) and str(known).startswith(f"{tmp_path}: No space left")


def test_what_is_no_fault_of_the_machine_stays_unforeseen(tmp_path: Path):
    for error in (KeyError("a"), OSError("no code"), ConnectionRefusedError(111, "refused")):
        assert foreseen(error, tmp_path) is None
    assert foreseen(ModuleNotFoundError("of a user", name="theirs"), tmp_path) is None
    assert errno.ENOENT not in EXHAUSTED


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_a_folder_in_place_of_a_file_of_a_run_is_named(trained: TinyLab, name: str):
    (run,) = trained.root.glob("runs/tiny/*")
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    result = call("resume", "tiny", "--lab", trained.root)
    assert_one_line(result, f"{run / name}: Is a directory (move")
    assert not list(run.glob("traceback*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_files_that_this_user_may_not_read_or_write_are_named(trained: TinyLab, tmp_path: Path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and folder.stat().st_mode & 0o005 != 0o005:
            pytest.skip("this user cannot reach the temporary folder")
    code = (
        f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY});"
        "sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
    )
    (run,) = trained.root.glob("runs/tiny/*")
    (run / "metrics.jsonl").chmod(0)
    for command in (["report", "tiny"], ["runs"]):
        done = run_code(code, *command, "--lab", trained.root)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "give this user the right to it" in done.stderr


@pytest.mark.slow
def test_a_run_on_a_disk_that_fills_up_fails_in_one_line_and_goes_on_with_room(lab: TinyLab):
    small = lab.root / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", small],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("no right to mount")
    try:
        for name in ("model", "sums.jsonl", "test.jsonl"):
            (small / name).symlink_to(lab.root / name)
        result = spawn("run", lab.file, "--lab", small, *SHORT, "--despite", "it fills up")
        assert_one_line(result, "make room")
        with pytest.raises(OSError), (small / "filler").open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(1024))
        result = spawn("convert", lab.root / "sums.jsonl", small / "out.jsonl", "--to", "trl")
        assert_one_line(result, str(small), "No space left on device (free some space", code=1)
        assert not list(small.glob("*out.jsonl*"))
        assert not list(small.rglob("traceback*"))
        subprocess.run(["mount", "-o", "remount,size=300m", small], check=True)
        assert spawn("resume", "tiny", "--lab", small).returncode == 0
    finally:
        subprocess.run(["umount", "-l", small], check=True)
