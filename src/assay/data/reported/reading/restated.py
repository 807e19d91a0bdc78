"""Numbers of tables that sentences print again, and numbers that stand in sentences alone."""

import re
from decimal import Decimal

from assay.data.reported.reading import words
from assay.data.reported.reading.claims import Known
from assay.data.reported.reading.conclusions import hedged
from assay.data.reported.reading.draft import Draft
from assay.data.reported.record import Mention, Metric

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
    """A score of one run that a sentence prints again, where it says of which benchmark."""
    named = list(dict.fromkeys(n.name for n in known.named(text)))
    printed = list(PRINTED.finditer(text))
    if len(named) != 1 or len(printed) != 1 or hedged(text) or OTHER.search(text):
        return
    (match,) = printed
    if not REACHES.search(text[: match.start()]):
        return
    scores = {s.cell: s for s in draft.scores if s.run == named[0] and s.values}
    cells = list(dict.fromkeys(n.name for n in known.cells.find(text)))
    cell = (
        cells[0]
        if len(cells) == 1
        else next(iter(scores))
        if len(scores) == 1 and not cells
        else None
    )
    if (
        cell is None
        or cell not in scores
        or scores[cell].line == line
        or words.NOT_TEST.search(cell)
    ):
        return
    said = Decimal(match[1])
    if not any(_rounds_to(value, said) for value in scores[cell].values):
        found = Mention(
            of=named[0], place=f"line {line}", cell=cell, scores={cell: (said,)}, line=line
        )
        draft.add("mentions", found)


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
