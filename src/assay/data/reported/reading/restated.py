"""Numbers of tables that sentences print again, and numbers that stand in sentences alone."""

import re
from collections.abc import Sequence
from decimal import Decimal

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.conclusions import PERCENTAGE, hedged
from assay.data.reported.reading.draft import Draft
from assay.data.reported.reading.stated_claims import Known
from assay.data.reported.reported_record import Change, Mention, Metric

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
