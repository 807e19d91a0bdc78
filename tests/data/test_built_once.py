"""A directory in the cache is absent or whole, whatever happens while it is built."""

import threading
from pathlib import Path

import pytest

from assay.data.files import built_once, cache_root


def test_the_environment_chooses_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("ASSAY_CACHE")
    assert cache_root() == Path.home() / ".cache" / "assay"


def test_a_failed_build_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "thing"

    def fail(directory: Path) -> None:
        (directory / "half").write_text("x")
        raise RuntimeError("cable pulled")

    with pytest.raises(RuntimeError, match="cable pulled"):
        built_once(target, fail)
    assert [p.name for p in target.parent.iterdir()] == ["thing.lock"]
    built_once(target, lambda directory: (directory / "whole").touch())
    assert (target / "whole").exists()


def test_what_a_killed_builder_left_goes_and_no_other_targets(tmp_path: Path) -> None:
    for name in (".thing.a1b2.part", ".thing-more.a1b2.part", ".thing-a1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").touch()
    built_once(tmp_path / "thing", lambda directory: (directory / "whole").touch())
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {"thing", ".thing-more.a1b2.part", ".thing-a1"}


def test_builders_at_the_same_time_build_once(tmp_path: Path) -> None:
    builds: list[int] = []
    gate = threading.Barrier(4)

    def build(directory: Path) -> None:
        builds.append(1)
        (directory / "a").touch()

    def ask() -> None:
        gate.wait()
        built_once(tmp_path / "thing", build)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
