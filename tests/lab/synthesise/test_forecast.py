"""What the check says a set will cost is never less than what is paid, and asks nobody."""

import pytest

from tests.from_files import check_experiment
from tests.lab.synthesise.sums import calls_of, make_sums, synthesise
from tests.lab.synthesise.test_make import numbered


def asked_for(file, *overrides) -> tuple[float, float]:
    """Calls and cost that are forecast; nothing where no more is asked."""
    found = check_experiment(file, overrides, root=file.parent)
    told = [each.what for each in found.findings if each.what.startswith("synthesise.more")]
    numbers = found.numbers.get("synthesise.more", {})
    calls, cost = (numbers.get(f"{name}, at most", 0) for name in ("calls", "cost"))
    assert not calls or f"at most {calls} calls for {cost:.3g}" in told[0]
    return calls, cost


def test_calls_and_cost_are_bounds_and_what_is_paid_for_is_not_counted_again(tmp_path):
    rules = [*numbered(8), {"prompt": "", "answer": "No."}]
    file = make_sums(tmp_path, "rows = 12\nsamples = 4", rules)
    calls, cost = asked_for(file)
    assert calls == 16
    assert not (tmp_path / "synthesised").exists()
    short = asked_for(file, "synthesise.more.calls=9")
    assert short[0] == 9 and short[1] < cost
    found = synthesise(file)
    assert found.total is not None and found.total.cost is not None
    assert found.total.calls <= calls and found.total.cost <= cost
    left = asked_for(file)
    assert len(found.rows) == 8 and left[0] == calls - calls_of(file)["answered"]
    whole = f"synthesise.more.rows={len(found.rows)}"
    synthesise(file, whole)
    assert asked_for(file, whole) == (0, 0)


@pytest.mark.parametrize("taken", [False, True])
def test_rows_that_are_to_be_made_first_have_their_price(tmp_path, taken):
    file = make_sums(tmp_path, "rows = 2\nsamples = 1", [{"prompt": "", "answer": "x"}])
    if taken:
        file.write_text(file.read_text() + "[data.train]\nsource = 'synthesise:more'\n")
    found = check_experiment(file, root=tmp_path)
    assert len(found.errors) == taken
    assert found.numbers["synthesise.more"]["calls, at most"] == 4
