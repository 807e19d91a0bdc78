"""Progress says what matters, at a sensible rate, and never calls the surrogate a loss."""

from assay.pages.live_display import PlainProgress, figures

GRPO = {
    "reward_mean": 0.41,
    "signal_share": 0.625,
    "grad_norm": 0.31,
    "kl": 0.0021,
    "clip_low_share": 0.01,
    "clip_high_share": 0.02,
    "entropy": 0.8,
    "length_mean": 41.2,
    "truncated_share": 0.03,
    "abstained_share": 0.0,
    "skipped_steps": 0.0,
    "completion_tokens": 900.0,
    "loss": -0.0001,
    "objective": 0.1,
    "seconds": 3.0,
}


class Time:
    """A clock that tests turn."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_grpo_shows_what_tells_learning_and_no_loss():
    shown = figures(GRPO)
    assert shown == (
        "reward 0.410  groups with signal 62%  gradient norm 0.31  KL 0.0021  clipped low 1.0%  "
        "clipped high 2.0%  entropy 0.800  length 41  truncated 3%  300 tokens/s"
    )
    assert "loss" not in shown


def test_a_narrow_terminal_lacks_the_figures_that_do_not_fit():
    shown = "reward 0.410  groups with signal 62%  gradient norm 0.31  KL 0.0021"
    assert figures(GRPO, len(shown)) == figures(GRPO, len(shown) + 9) == shown


def plain_lines() -> tuple[PlainProgress, list[str], Time]:
    lines, clock = list[str](), Time()
    return PlainProgress(lines.append, clock), lines, clock


def test_logs_get_the_first_and_last_step_and_one_line_in_ten_seconds():
    observer, lines, clock = plain_lines()
    observer.stage("sft", "sft", 0, 50)
    for step in range(1, 51):
        clock.now += 3
        observer.step(step, {"nll": 1.0, "seconds": 3.0})
    steps = [int(line.split("/")[0].split()[1]) for line in lines[1:]]
    assert steps[0] == 1 and steps[-1] == 50
    assert steps == [1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 50]
    assert lines[0] == "sft (sft): 50 steps"


def test_a_log_says_how_long_an_evaluation_still_takes():
    observer, lines, clock = plain_lines()
    for done in (100, 200, 300, 400):
        observer.evaluation("test", "base", done, 400)
        clock.now += 15
    assert lines == [
        "evaluation test of base: 100/400 answers",
        "evaluation test of base: 200/400 answers, 0:30 left",
        "evaluation test of base: 300/400 answers, 0:15 left",
        "evaluation test of base: 400/400 answers",
    ]


def test_other_work_is_silent_for_five_seconds_then_tells_its_part_and_the_time_left():
    observer, lines, clock = plain_lines()
    for done, part in enumerate(("rows", "leakage", "speed", "")):
        observer.work("checking", done, 3, part)
        clock.now += 1
    assert lines == []
    for done, part in enumerate(("rows", "leakage", "speed", "")):
        observer.work("checking", done, 3, part)
        clock.now += 6
    observer.work("reading", 1000, 0)
    clock.now += 6
    observer.work("reading", 2000, 0)
    assert lines == ["checking: 1/3 (leakage), 0:12 left", "reading: 2,000"]


def test_inside_a_long_step_a_log_says_how_many_completions_are_done_and_steps_are_not_held_back():
    observer, lines, clock = plain_lines()
    observer.stage("rl", "grpo", 0, 9)
    for part, seconds in (("sampled", 4), ("judged", 1), ("trained", 0.1)):
        for done in range(1, 5):
            clock.now += seconds
            observer.inside(part, done, 4)
    observer.step(1, {})
    for step in range(2, 9):  # of three seconds each
        for part in ("sampled", "judged"):
            clock.now += 1.5
            observer.inside(part, 4, 4)
        observer.step(step, {})
    assert lines == [
        "rl (grpo): 9 steps",
        "rl 1/9 sampled: 3/4, 0:04 left",
        "rl 1/9  2:43 left",
        "rl 5/9  0:26 left",
    ]
