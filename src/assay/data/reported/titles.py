"""The words of a table's titles, which say what a column holds, and the figures of its cells."""

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """A score, the count behind it, or both."""

    value: Decimal | None = None
    count: int | None = None
    total: int | None = None
    percent: bool = False


NUMBER = r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?"
FIGURES = [
    re.compile(rf"(?P<value>{NUMBER})\s*(?P<unit>%|pp|pts?|points?|个点|点)?"),
    re.compile(r"(?P<count>\d+)\s*/\s*(?P<total>\d+)"),
    re.compile(rf"(?P<value>{NUMBER})\s*(?P<unit>%?)\s*\((?P<count>\d+)\s*/\s*(?P<total>\d+)\)"),
    re.compile(
        rf"(?P<count>\d+)\s*/\s*(?P<total>\d+)\s*[(=,:]\s*(?P<value>{NUMBER})\s*(?P<unit>%?)\)?"
    ),
]
MISSING = re.compile(r"(?:[-–—/]*|n/?a|none|null|nan|未测|未跑|无)", re.I)
OPEN = re.compile(r"[?？]+|t(?:bd|odo)|待定|待填", re.I)
MARKS = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|<[^<>]*>|\*\*|__|[`†‡↑✓✅🔥]|~~|(?<=\d)\*+$|^\*|\*$")

RUN = (
    "models?|methods?|runs?|run id|systems?|checkpoints?|ckpt|config(?:uration)?s?|arms?|variants?"
)
RUN += "|agents?|names?|approach(?:es)?|polic(?:y|ies)|strateg(?:y|ies)|experiments?|模型|方法|系统"
RUN += "|实验|版本|方案|检查点|策略"
BENCHMARK = "benchmarks?|tasks?|datasets?|evals?|evaluations?|test ?sets?|test|metrics?|measures?"
BENCHMARK += "|评测集|评测|测试集|任务|数据集|基准|指标"
ITEMS = "n|items?|totals?|examples?|samples?|questions?|problems?|instances?|sessions?|attempted"
ITEMS += "|每项样本数|样本数|题目总数|题数|总题数|总数|条数"
RIGHT = "correct|right|hits|solved|passed|successes|正确数|正确|答对|成功|通过数"
FAILED = "failures|timeouts?|parse errors|parse failures|unparsable|errors|refusals|crashes"
FAILED += "|超时|崩溃|解析失败|拒答"
NAMED = "accuracy|acc|em|exact match|success rate|pass rate|pass@1|solve rate"
NAMED += "|准确率|正确率|成功率|通过率"
"""Metrics that are a share of the items by their name."""
SHARE = f"{NAMED}|success|score|percent|pct|value|result|得分"
SAMPLED = re.compile(r"\b(?:avg|mean|maj|cons|best|major|pass)@(?!1\b)", re.I)
"""Words of a table whose scores are means of several samples of an item."""
MEANS = "avg|averaged?|mean|macro|balanced|c?mmlu|c-?eval|agieval|bbh"
"""Words of scores that are means over something else than items, such as subjects."""
OTHER = (
    "acc[ -]norm|f1|bleu|rouge|chrf|comet|meteor|bertscore|ppl|perplexity|loss|kl|rewards?|elo|mrr"
    "|ndcg|m?ap|au(?:ro)?c|mcc|corr(?:elation)?|pearson|spearman|recall|precision|[rp]@\\d+|hit@\\d+"
    "|(?:avg|mean|maj|cons|best|major)@\\d+|pass@(?!1\\b)\\w+|pass\\^\\w+|wer|cer|errors? rate|time"
    "|latency|costs?|price|tokens?|params?|parameters|size|memory|vram|gpus?|speed|throughput"
    "|len|length|entropy|norm|rank|m?s|gb|mb|std|sd|stderr|se|ci|interval|versions?|shots?|budget"
    "|mt[ -]bench|arena|win ?rate|m?iou|dice|rmse|mae|mse|r2|fid|ratio|hours?|minutes?|seconds?"
    "|flops|context|year|date|speedup|ece|brier|weight|layers|dim|id|index|\\S*误差|损失"
    "|耗时|延迟|成本|费用|显存|长度|召回率?|精确率|错误率|困惑度|吞吐|区间|标准差|排名|时间|轮数"
)
SETTINGS = {
    "data": "data|train(?:ing)? data|train set|训练数据|数据",
    "base": "base|base model|底座|基座",
    "learning rate": "lr|learning rate|学习率",
    "epochs": "epochs|训练轮数",
    "temperature": "temperature|温度",
    "prompt": "prompt|prompts|提示词",
    "method": "training|stage|训练方法",
}
SEED = "seed|trial|repeat|种子|重复"
STEP = "(?:global )?steps?|epochs?|iterations?|rounds?|步数?|轮次"
NOTES = "notes?|remarks?|comments?|memo|备注|说明|结论|更新时间|日期"
AVERAGE = re.compile(r"(?:.{1,5}项)?(?:平均|均值)|\b(?:avg|average|mean|overall)\b(?!@)", re.I)
CHANGE = re.compile(
    r"[Δδ∆]|\b(?:delta|diff(?:erence)?|gains?|improv\w*|change|(?:up)?lift)\b|提升|差值|变化|增益|较基",
    re.I,
)
CONTROL = re.compile(r"(?:base|baseline|control|untrained|基线|对照)\b|基线|对照|未训练", re.I)
SIZED = re.compile(
    r"\(?\bn\s*=\s*(\d[\d,]*)\)?|\(?(\d[\d,]*)\s*(?:items|questions|problems|题|条)\)?", re.I
)
UNITS = re.compile(r"[(\[]\s*(?:%|pct|percent|pp|in %|截断.*)?\s*[)\]]|[%↑↓#]|,\s*$")
SCRIPTS = re.compile(r"(?<=[a-zA-Z0-9])(?=[一-鿿])|(?<=[一-鿿])(?=[a-zA-Z0-9])")
SILENT = re.compile(
    r"(?:groups?|prompts?|组).*(?:std *= *0|zero|equal|same|identical|相同|无方差)"
    r"|零方差|zero[- ]?(?:std|variance|advantage)|all[- ]?equal", re.I,
)  # fmt: skip
RUNNING = re.compile(r"cumulative|so far|since (?:the )?start|累计", re.I)
RATE = re.compile(r"rate|%|ratio|share|率|占比", re.I)

Role = Literal[
    "run", "benchmark", "items", "right", "failed", "score", "other", "setting", "seed", "step",
    "notes", "average", "change", "control", "says", "unknown",
]  # fmt: skip
WORDS: dict[Role, str] = {
    "notes": NOTES,
    "seed": SEED,
    "other": OTHER,
    "step": STEP,
    "failed": FAILED,
    "score": SHARE,
    "right": RIGHT,
    "items": ITEMS,
    "run": RUN,
    "benchmark": BENCHMARK,
}
WHOLE = ("notes", "seed", "step", "run", "benchmark")
"""Roles whose words are the whole title; of the others the rest names the benchmark."""


@dataclass(slots=True)
class Column:
    """A column and what its title says."""

    index: int
    title: str
    role: Role
    rest: str = ""
    """What the title says beside its role: a benchmark; for a setting its key."""
    items: int | None = None


def plain(text: str) -> str:
    """Text without emphasis, links and tags, in one width."""
    text = unicodedata.normalize("NFKC", text.replace("&nbsp;", " ").replace("\\|", "|"))
    return " ".join(MARKS.sub(lambda m: m[1] or "", text.replace("−", "-")).split())


def figure(text: str) -> Figure | None:
    """The figure that a cell holds and nothing else."""
    if not 0 < len(text) <= 40:  # no report prints longer ones
        return None
    for pattern in FIGURES:
        match = pattern.fullmatch(text)
        if match is None or not re.search(r"\d", match[0]):
            continue
        parts = match.groupdict()
        value = Decimal(parts["value"].replace(",", "")) if parts.get("value") else None
        count, total = (int(parts[n]) if parts.get(n) else None for n in ("count", "total"))
        if count is None or total is None or count <= total:
            return Figure(value, count, total, parts.get("unit") == "%")
    return None


def whole(text: str) -> int | None:
    """The whole number that a cell holds."""
    read = None if "." in text else figure(text)
    return int(read.value) if read and read.value is not None and read.count is None else None


def column_of(index: int, title: str) -> Column:
    """The role that the words of a title give."""
    sized = SIZED.search(title)
    items = int(next(n for n in sized.groups() if n).replace(",", "")) if sized else None
    bare = SIZED.sub(" ", title) if sized else title
    bare = SCRIPTS.sub(" ", UNITS.sub(" ", bare).replace("_", " "))
    bare = " ".join(bare.split()).strip(" :-/,")
    words = bare.lower()
    if words in ("control", "says"):
        return Column(index, title, words)
    for key, pattern in SETTINGS.items():
        if re.fullmatch(pattern, words):
            return Column(index, title, "setting", key)
    for role in WHOLE:
        if re.fullmatch(WORDS[role], words):
            return Column(index, title, role)
    if CHANGE.search(bare):
        return Column(index, title, "change", bare)
    if AVERAGE.search(bare) and not has_words(OTHER, words):
        return Column(index, title, "average", bare)
    for role, pattern in WORDS.items():
        found = has_words(pattern, words) if role not in WHOLE else None
        if found:
            rest = _rest(bare[: found.start()] + " " + bare[found.end() :])
            return Column(index, title, role, rest, items)
    return Column(index, title, "unknown", bare, items)


def has_words(pattern: str, words: str) -> re.Match[str] | None:
    """The words of a pattern, as whole words, in a title in lower case."""
    return re.search(rf"(?<![a-z0-9@])(?:{pattern})(?:@\d+)?(?![a-z0-9@])", words)


def _rest(title: str) -> str:
    """A benchmark's name without the words of counts around it."""
    words = title.strip(" /-:(),").split()
    while words and re.fullmatch(f"num|no|number|of|per|{ITEMS}|{RIGHT}|{SHARE}", words[0].lower()):
        words = words[1:]
    while words and re.fullmatch(f"of|per|{ITEMS}|set|benchmark", words[-1].lower()):
        words = words[:-1]
    return " ".join(words).strip(" /-:(),")
