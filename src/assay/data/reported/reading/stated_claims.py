"""Finds conclusions in sentences, and numbers that sentences repeat from tables or add to them.

A conclusion needs a comparing word and two runs of the tables, or one and the baseline; it holds
for the benchmarks it names. Hedged and negated sentences, questions and plans are skipped.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.conclusions import (
    AGAINST,
    BASELINE,
    BETTER,
    CLAUSE,
    CREDIT,
    DOUBTED,
    EFFECT,
    FROM,
    GAINED,
    HENCE,
    LISTED,
    NOT,
    OBJECT,
    OTHER_METRIC,
    P_VALUE,
    PAIRED,
    PERCENTAGE,
    SAME,
    SUPERLATIVE,
    TO,
    WORSE,
    hedged,
)
from assay.data.reported.reading.draft import Draft
from assay.data.reported.reading.name_forms import Named, Names
from assay.data.reported.reading.sizes import sentences
from assay.data.reported.reading.vocabulary import NOT_TEST
from assay.data.reported.reported_record import Change, Comparison, Mention, Metric, Verdict


@dataclass(frozen=True, slots=True)
class Claim:
    """A stated comparison of a run with another."""

    run: str
    control: str
    says: Verdict
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """The names that sentences are understood by."""

    runs: Names
    cells: Names
    control: str

    @staticmethod
    def of(draft: Draft) -> "Known":
        """The names of a draft."""
        averages = [average.name for average in draft.averages]
        return Known(
            Names(draft.run_names()), Names([*draft.cell_names(), *averages]), draft.control()
        )

    def named(self, text: str) -> list[Named]:
        """The runs that a text names, in order; a word for the baseline names the control."""
        found = self.runs.find(text)
        if self.control:
            taken = [(n.start, n.end) for n in found]
            for match in BASELINE.finditer(text):
                if all(match.end() <= start or match.start() >= end for start, end in taken):
                    found.append(Named(self.control, match.start(), match.end()))
        return sorted(found, key=lambda named: named.start)


def verdict_of(text: str) -> tuple[Verdict, int, int] | None:
    """What a clause says, and where its first word that compares stands; None where hedged."""
    if hedged(text):
        return None
    if same := SAME.search(text):
        return "same", same.start(), same.end()
    found = [
        (m.start(), m.end(), says)
        for p, says in ((BETTER, "better"), (WORSE, "worse"))
        for m in p.finditer(text)
    ]
    if not found or len({says for *_, says in found}) > 1:
        return None
    start, end, says = found[0]
    if NOT.search(text[:start]):
        return None
    return ("better" if says == "better" else "worse"), start, end


def claims_in(text: str, known: Known, subject: str = "") -> Iterator[Claim]:
    """The claims of a sentence; `subject` is the run that it stands beside, if it does."""
    if DOUBTED.search(text):
        return
    last: tuple[list[str], list[str]] = ([], [])
    said = (part for part in HENCE.split(CREDIT.split(text)[0]) if part and not hedged(part))
    for clause in (clause for part in said for clause in clauses(part)):
        named = known.named(clause)
        found = verdict_of(clause)
        if found is None or OTHER_METRIC.search(clause):
            continue
        runs, controls = _sides(clause, named, *found[1:])
        if found[0] == "same" and not controls:
            runs, controls = runs[:1], runs[1:]
        if subject and subject not in runs:
            # `sft is better` in the notes of another run is about sft.
            first = [n.name for n in named if n.name in runs and n.end <= found[1]]
            turned = bool(first) and found[0] != "same"
            runs, controls = (first, [subject]) if turned else ([subject], [*runs, *controls])
        if EFFECT.search(clause):
            named = [n for n in named if n.end <= found[1]] or named[:1]
            runs, controls = [n.name for n in named[-1:]], [known.control] if known.control else []
        # The second half of `A beats B on X but drops on Y` is about the same runs.
        runs = runs or ([subject] if subject else last[0])
        controls = [name for name in controls if name not in runs] or (
            [] if named and not subject else last[1]
        )
        if not controls and subject and known.control not in ("", subject):
            controls = [known.control]
        last = (runs, controls)
        cells = tuple(dict.fromkeys(n.name for n in known.cells.find(clause)))
        for run in runs:
            yield from (
                Claim(run, control, found[0], cells) for control in controls if run != control
            )


def clauses(text: str) -> list[str]:
    """The parts of a sentence, each with a word that compares; others join their neighbour."""
    found: list[str] = []
    for half in filter(None, map(str.strip, CLAUSE.split(text))):
        pending = ""
        first = len(found)
        for part in re.split(r"(?<=[,，])", half):
            pending += part
            if any(pattern.search(part) for pattern in (BETTER, WORSE, SAME)):
                found.append(pending)
                pending = ""
        if pending and len(found) > first:
            found[-1] += pending
        elif pending:
            found.append(pending)
    return found


def _sides(
    clause: str, named: Sequence[Named], start: int, end: int
) -> tuple[list[str], list[str]]:
    """The runs that a clause is about, and those that they are compared with."""
    if not named:
        return [], []
    if moved := _moved(clause, named):
        return [moved[1]], [moved[0]]
    objects: list[str] = []
    subjects: list[str] = []
    previous, is_object = 0, False
    for each in named:
        between = clause[previous : each.start]
        opening = is_object and not subjects and re.search("[,，]", between)
        if opening or not previous or not LISTED.match(between):
            passed = previous <= start < each.start or previous < end <= each.start
            marked = re.search(rf"(?:{OBJECT.pattern})\s*(?:the\s+)?(?:\w+\s+)?$", between, re.I)
            beside = re.match(r"\s*(?:相比|相较)", clause[each.end :])
            against = marked and (subjects or AGAINST.search(between))
            is_object = not opening and bool(beside or against or (passed and subjects))
        (objects if is_object else subjects).append(each.name)
        previous = each.end
    return subjects, objects


def _moved(clause: str, named: Sequence[Named]) -> tuple[str, str] | None:
    """The two runs of `from A to B`."""
    for first, second in pairwise(named):
        begins = FROM.search(clause[: first.start])
        if begins and TO.match(clause[first.end : second.start]) and first.name != second.name:
            return first.name, second.name
    return None


def read_claims(draft: Draft, lines: Sequence[tuple[str, int]]) -> None:
    """Add the claims of sentences and of notes beside runs."""
    known = Known.of(draft)
    for text, line in lines:
        for sentence in sentences(text):
            named = {n.name for n in known.named(sentence)}
            if len(named) > 1:
                direct = list(claims_in(sentence, known))
                told = direct or list(implied_in(draft, sentence, known))
                _add(draft, iter(told), sentence, line)
            elif len(named) == 1 and EFFECT.search(sentence):
                _add(draft, claims_in(sentence, known, named.pop()), sentence, line)
            else:
                _add(draft, implied_in(draft, sentence, known), sentence, line)
    for note in draft.notes:
        cells = (note.cell,) if note.cell in draft.cell_names() else ()
        for sentence in sentences(note.text):
            found = claims_in(sentence, known, note.run)
            beside = (replace(claim, cells=claim.cells or cells) for claim in found)
            _add(draft, beside, sentence, note.line)


def _add(draft: Draft, found: Iterator[Claim], text: str, line: int) -> None:
    """Add claims about runs that have a common cell, each pair and its cells once."""
    for claim in found:
        mine, theirs = (_scored(draft, name) for name in (claim.run, claim.control))
        known = [(c.run, c.control, c.cells) for c in draft.parts.get("comparisons", ())]
        if mine & theirs and (claim.run, claim.control, claim.cells) not in known:
            part = Comparison(
                run=claim.run,
                control=claim.control,
                says=claim.says,
                cells=claim.cells,
                paired=bool(PAIRED.search(text) or PAIRED.search(draft.text)),
                p=_p_value(text),
                line=line,
            )
            draft.add("comparisons", part)


def implied_in(draft: Draft, text: str, known: Known) -> Iterator[Claim]:
    """Claims of sentences that do not name both runs.

    `44.0 against 46.5` are the two runs with these scores on one benchmark; "the best" claims to be
    better than the second best, and a gain in points is a gain over the baseline.
    """
    if DOUBTED.search(text) or OTHER_METRIC.search(text) or NOT_TEST.search(text):
        return
    parts = [part for part in HENCE.split(CREDIT.split(text)[0]) if part and not hedged(part)]
    found = next((verdict for part in parts if (verdict := verdict_of(part))), None)
    if found is None:
        return
    cells = tuple(dict.fromkeys(n.name for n in known.cells.find(text)))
    named = list(dict.fromkeys(n.name for n in known.named(text)))
    if two := by_scores(draft, text, cells, named):
        (low, high), cell = two
        run, control = (low, high) if found[0] == "worse" else (high, low)
        yield Claim(run, control, found[0], (cell,) if cell else ())
    elif len(named) == 1 and found[0] == "better" and SUPERLATIVE.search(text):
        for cell, other in _next_best(draft, named[0], cells):
            yield Claim(named[0], other, "better", (cell,) if cell else ())
    elif len(named) == 1 and GAINED.search(text) and known.control not in ("", named[0]):
        yield Claim(named[0], known.control, found[0], cells)


def by_scores(
    draft: Draft, text: str, cells: Sequence[str], named: Sequence[str]
) -> tuple[tuple[str, str], str] | None:
    """The two runs, lower first, that have the two scores printed in a text, and of what."""
    printed = {Decimal(m[1]) for m in PERCENTAGE.finditer(text)}
    found = []
    for cell in cells or [*draft.cell_names(), ""]:
        scores = {s.run: s.values[0] for s in draft.scores if s.cell == cell and s.values}
        hits = sorted((value, run) for run, value in scores.items() if value in printed)
        if len(hits) == 2 == len(printed) and {*named} <= {run for _, run in hits}:
            found.append(((hits[0][1], hits[1][1]), cell))
    return found[0] if len(found) == 1 else None


def _next_best(draft: Draft, run: str, cells: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The next best run of the one benchmark that there is, or of each that is named."""
    every = [*draft.cell_names(), *([] if all(s.cell for s in draft.scores) else [""])]
    for cell in cells or (every if len(every) == 1 else ()):
        scores = {s.run: s.values[0] for s in draft.scores if s.cell == cell and s.values}
        mine = scores.pop(run, None)
        if mine is not None and scores and mine > max(scores.values()):
            yield cell, max(scores, key=lambda name: scores[name])


def _p_value(text: str) -> Decimal | None:
    """The p-value that a sentence prints; one that is below a limit is below it."""
    match = P_VALUE.search(text)
    if match is None:
        return None
    value = Decimal(match[2])
    return value * Decimal("0.999") if match[1] in "<＜" else value


def _scored(draft: Draft, run: str) -> set[str]:
    """The cells that a run has a score of."""
    return {s.cell for s in draft.scores if s.run == run and (s.values or s.right is not None)}


REACHES = re.compile(
    r"(?<![a-z])(?:reach(?:es|ed)?|scor(?:es|ed)|gets?|got|achiev(?:es|ed)|obtains?"
    r"|obtained|attain(?:s|ed)|is at|stands at"
    r"|ends at|arrives at|with|at|has|of|to|accuracy(?: of"
    r"| is)?)\s*:?\s*(?:an? )?(?:\w+ )?(?:accuracy of |score of )?$"
    r"|(?:达到了?|取得了?|得到|得分|准确率|正确率|通过率|为|是|有|到)[了为是]?\s*[:：]?\s*$"
    r"|[(（=:：]\s*$",
    re.I,
)
"""What stands before a score that a sentence prints again."""
PRINTED = re.compile(
    r"(?<![\d.+−–-])(\d{1,3}(?:\.\d+)?)\s*[%％](?!\s*(?:points?|pp|CI|置信|个?百分?点|of))", re.I
)
OTHER = re.compile(
    r"(?<![a-z])(?:train(?:ing)?|dev|val(?:idation)?|subset|relative|gain|improv\w*|drop\w*"
    r"|by|more|fewer|less|about|around"
    r"|roughly|approximately|almost|nearly|over|under|above|below|than|between|from|groups?"
    r"|tokens?|format|parse|of the"
    r"|excluding|without|if|would|expected|target|chance|previous\w*|last week|literature"
    r"|published|paper|interval|CI)(?![a-z])"
    r"|训练|验证|子集|相对|提升|下降|约|左右|大约|接近|超过|不到|目标|预期|此前|上周|论文"
    r"|组|格式|区间|占|从|如果|剔除",
    re.I,
)
"""Sentences with these words may speak of another number of the same run."""
GAP = re.compile(
    r"(?<![a-z])(?:up|by|gains?|gained|gain of|adds?|improvement of|lead of|leads by|ahead by)\s+"
    r"(?:of )?[+＋]?(\d+\.\d+)\s*(?:pp|pts?|points?|percentage points?)(?![a-z])"
    r"|(?:高出?|涨|提升|多|领先|增益|相差|升)了?\s*[+＋]?(\d+\.\d+)\s*个?(?:百分)?点",
    re.I,
)
"""A difference in points, to its digits."""
ROUGH = re.compile(
    r"(?<![a-z])(?:about|around|roughly|nearly|almost|more than|less than|at least|up to|CI"
    r"|interval|train|dev|val|average|mean|relative|each|both|p\s*[=<])(?![a-z])"
    r"|约|左右|接近|超过|不到|至少|区间|训练|验证|平均|相对|都|分别|各",
    re.I,
)
"""Words with which a difference may be one of other numbers, or no exact one."""
SIGNAL = re.compile(
    r"(\d{1,3}(?:\.\d+)?)\s*[%％]\s*(?:of (?:the |all |our )?)?(?:\w+ ){0,2}?(?:groups"
    r"|prompts|的?(?:组|prompt|分组|提示|问题))",
    re.I,
)
NO_SIGNAL = re.compile(
    r"zero[ -](?:variance|std|advantage|gradient|signal)|no (?:learning )?(?:signal"
    r"|gradient|spread)|(?:all|same|identical|equal)"
    r"[ \w-]{0,20}rewards?|rewards?[ \w-]{0,12}(?:identical|equal|the same)|all[- ](?:right"
    r"|correct|wrong)|without (?:any )?signal"
    r"|零方差|零优势|没有(?:学习)?信号|无信号|无梯度|没有梯度|奖励(?:全部|都|完全)?(?:相同"
    r"|一样|一致)|全对|全错",
    re.I,
)


def read_restated(draft: Draft, known: Known, text: str, line: int) -> None:
    """Scores that a sentence prints again, each beside its run, of a benchmark that it says."""
    if hedged(text) or OTHER.search(text):
        return
    cells = list(dict.fromkeys(n.name for n in known.cells.find(text)))
    for part in re.split(r"[,，;；、](?!\d)|(?<![a-z])(?:and|while|whereas)(?![a-z])", text):
        named = list(dict.fromkeys(n.name for n in known.named(part)))
        printed = list(PRINTED.finditer(part)) or list(PERCENTAGE.finditer(part))
        if len(named) == len(printed) == 1 and REACHES.search(part[: printed[0].start()]):
            own = [n.name for n in known.cells.find(part)] or cells
            _again(draft, named[0], own, Decimal(printed[0][1]), line)


def _again(draft: Draft, run: str, cells: Sequence[str], said: Decimal, line: int) -> None:
    """Add a score that is printed again, where it is another one than before."""
    scores = {s.cell: s for s in draft.scores if s.run == run and s.values}
    of = list(dict.fromkeys(cells)) or list(scores)
    score = scores.get(of[0]) if len(of) == 1 else None
    if score is None or score.line == line or vocabulary.NOT_TEST.search(of[0]):
        return
    if not any(_rounds_to(value, said) for value in score.values):
        again = {of[0]: (said,)}
        draft.add(
            "mentions", Mention(of=run, place=f"line {line}", cell=of[0], scores=again, line=line)
        )


def read_gap(draft: Draft, known: Known, text: str, line: int) -> None:
    """A difference of two named runs on one benchmark, printed in points."""
    gaps = list(GAP.finditer(text))
    named = list(dict.fromkeys(n.name for n in known.named(text)))
    if len(gaps) != 1 or len(named) != 2 or hedged(text) or ROUGH.search(text):
        return
    first, second = ({s.cell: s for s in draft.scores if s.run == n and s.values} for n in named)
    told = list(dict.fromkeys(n.name for n in known.cells.find(text)))
    shared = [cell for cell in first if cell in second and cell in (told or [cell])]
    if len(shared) == 1:
        low, high = sorted(s[shared[0]].values[0] for s in (first, second))
        of = " → ".join(sorted(named, key=lambda n: n != named[0]))
        change = Change(
            of=of, before=low, after=high, says=Decimal(gaps[0][1] or gaps[0][2]), line=line
        )
        draft.add("changes", change)


def _rounds_to(value: Decimal, said: Decimal) -> bool:
    """Whether one number may be the other with fewer digits."""
    exponents = [number.as_tuple().exponent for number in (value, said)]
    unit = max(Decimal(1).scaleb(e) for e in exponents if isinstance(e, int))
    return abs(value - said) < unit


def read_signal(draft: Draft, text: str, line: int) -> None:
    """`80 % of groups had equal rewards`: a share of groups without signal."""
    match = SIGNAL.search(text)
    if match and NO_SIGNAL.search(text) and not hedged(text):
        value = Decimal(match[1])
        meaning = "groups without signal"
        if value <= 100 and all(m.meaning != meaning for m in draft.metrics.values()):
            name = match[0]
            draft.metrics[name] = Metric(
                name=name, steps=(0,), values=(value,), unit="percent", meaning=meaning, line=line
            )
