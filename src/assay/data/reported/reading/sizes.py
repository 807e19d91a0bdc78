"""Finds how many items were scored and how many passes averaged, in the text around tables."""

import re
from collections.abc import Sequence

from assay.data.reported.reading.blocks import Line
from assay.data.reported.reading.draft import Draft
from assay.data.reported.reading.name_forms import Names

SIZE = re.compile(
    r"(?<![A-Za-z])n\s*[=＝]\s*(\d[\d,]*)"
    r"|(?<![\d./])(\d[\d,]*)[- ]+(?:[a-z-]+[- ]+){0,4}?(?:items?|questions?|problems?"
    r"|prompts?|tasks?|examples?|samples?|instances?|cases?|dialogs?|dialogues?|puzzles?"
    r"|scenarios?|records?|exercises?|conversations?|queries)(?![a-z])"
    r"|(?<![\d./])(\d[\d,]*)\s*(?:道|个|条|份|封|篇|例)?\s*(?:测试|评测)?(?:题目?|问题|样本|样例"
    r"|用例|条目|任务|工单|案例|指令|对话|邮件|合同|请求|查询|病例|文档|句子?)"
    r"|(?:test|eval(?:uation)?|held[- ]out|benchmark)(?:[ -]?(?:set|split|suite|data))?"
    r"\s*(?:[:=(]|is|has|of|with|contains|holds)\s*(\d[\d,]*)\s+(?!%)[a-z]+"
    r"|(?:共|各|每个?|均为?|全部)\s*(\d[\d,]*)\s*(?:条|道|个|题)"
    r"|(?:evaluated|tested|scored|measured) on (?:the )?(?:\w+ )?(\d[\d,]*)(?![\d.%])"
    r"|(?<![\d.])(\d[\d,]*)\s*(?:条|道|份|封|篇|例)"
    r"|(?:样本[量数]|题[量数]|总数)\s*(?:为|是|均为|[:：=])?\s*(\d[\d,]*)",
    re.I,
)
TESTED = re.compile(
    r"evaluat|(?<![a-z])eval|(?<![a-z])tests?(?![a-z])|held[- ]out|benchmark|scor|accura"
    r"|measured|graded|(?<![a-z])n\s*=|same \d|each"
    r"|per (?:model|run|arm|system)|题|评测|测试|评估|准确|打分|各\s*\d|均为|样本[量数]",
    re.I,
)
TRAINED = re.compile(
    r"(?<![a-z])train|fine-?tun|sft data|per (?:step|prompt|group|batch)|batch|rollout|训练|微调"
    r"|每步|批次|采样|轨迹|demonstrations|excluded|dropped"
    r"|skipped|timed? ?out|fail|wrong|refus|剔除|排除|超时|失败|跳过|抽查|spot-check"
    r"|disagree|overlap|不计入",
    re.I,
)
REPEATS = re.compile(
    r"(?:mean|averages?d?|avg|平均).{0,40}?(?<![\d.])(\d{1,3}|two|three|four|five|eight"
    r"|ten)\s*(?:random )?(?:seeds?|runs?|passes|repeats?|trials?|samples? (?:per|each)"
    r"|repetitions|次|个?种子|遍|轮)"
    r"|(?<![\d.])(\d{1,3}|two|three|four|five|eight|ten)\s*(?:random )?(?:seeds?|passes"
    r"|repeats?|repetitions|次|个?种子|遍).{0,30}?(?:mean|averag|平均|均值)"
    r"|(?:avg|mean)@(\d+)",
    re.I,
)
NUMBERS = dict[str, int](
    two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, twelve=12
)


def number(text: str) -> int:
    """A small number in digits or as a word."""
    return NUMBERS.get(text.lower()) or int(text)


def read_sizes(draft: Draft, places: Sequence[tuple[str, Sequence[Line]]]) -> None:
    """Items of each benchmark, of each place and of all, and the number of averaged passes."""
    cells = Names(draft.cell_names())
    everywhere: set[int] = set()
    for place, lines in places:
        here: set[int] = set()
        for line in lines:
            for sentence in sentences(line.text):
                if found := REPEATS.search(sentence):
                    shown = next(group for group in found.groups() if group)
                    draft.repeats = number(shown)
                if TESTED.search(sentence):
                    here.update(_sizes(draft, cells, sentence))
        if len(here) == 1:
            draft.place_sizes[place] = min(here)
        everywhere |= here
    if len(everywhere) == 1:
        draft.sizes[""] = min(everywhere)


def sentences(text: str) -> list[str]:
    """The sentences of a line."""
    parts = re.split(
        r"(?<=[.!?])(?<!vs\.)(?<!e\.g\.)(?<!i\.e\.)(?<!no\.)(?<!acc\.)\s+|(?<=[。！？；])|;\s",
        text,
    )
    return [part.strip() for part in parts if part and part.strip()]


def _sizes(draft: Draft, cells: Names, sentence: str) -> list[int]:
    """The items in a sentence that are of no named benchmark; those of one are added."""
    rest = []
    named = cells.find(sentence)
    breaks = [0, *(m.end() for m in BREAK.finditer(sentence)), len(sentence)]
    for cell in named if LISTED.search(sentence) else ():
        if match := BESIDE.match(sentence[cell.end :]):
            draft.sizes.setdefault(cell.name, int(match[1].replace(",", "")))
    for match in SIZE.finditer(sentence):
        size = int(next(group for group in match.groups() if group).replace(",", ""))
        start = max(place for place in breaks if place <= match.start())
        end = min(place for place in breaks if place >= match.end())
        if size < 2 or TRAINED.search(sentence[start:end]):
            continue
        before = [n for n in named if n.end <= match.start() + 1]
        inside = [n for n in named if match.start() <= n.start < match.end()]
        after = [n for n in named if 0 <= n.start - match.end() <= 12]
        near = (inside or before[-1:] or after)[:1]
        if near:
            draft.sizes.setdefault(near[0].name, size)
        else:
            rest.append(size)
    return rest


LISTED = re.compile(
    r"(?<![a-z])(?:items|sizes?|questions|problems|examples|samples|prompts|tasks|n)(?![a-z])"
    r"|题|条|样本|数量|规模",
    re.I,
)
BESIDE = re.compile(
    r"^\s*(?:\([^()\d]*\)|（[^（）\d]*）)?\s*[:：=(（]?\s*(\d[\d,]*)(?![\d.]|,\d|\s*[%％])"
)
"""`Items: GSM8K 1319, IFEval 541`: a number of items beside each benchmark."""
BREAK = re.compile(r"[,，](?!\d)|[()（）:：]|(?<![a-z])and(?![a-z])|和|与")
"""Separators between which the words that name a number of items are searched."""
