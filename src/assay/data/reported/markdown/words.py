"""The words by which a Markdown log, Chinese or English, is understood: as data.

Patterns and what they stand for; nothing is read here.
"""

import re
from decimal import Decimal

from assay.data.reported.record import Meaning, Reading, Verdict

NUMBER = r"[-+−]?\d+(?:\.\d+)?"
PERCENT = re.compile(rf"^({NUMBER})\s*[%％]$")
BARE = re.compile(rf"^({NUMBER})$")
SHARE = re.compile(r"^(0?\.\d+|0|1(?:\.0+)?)$")
MONEY = re.compile(rf"^[$¥€£]\s*({NUMBER})$")
RATE = re.compile(rf"({NUMBER})\s*[%％]\s*[(（]\s*(\d+)\s*/\s*(\d+)\s*[)）]")
STARS = re.compile(r"^[⭐★]+$")

OPEN_CELL = re.compile(
    r"^(?:[?？]+(?:\s*/\s*\d+)?|tbd|tba|to-?do|待填充?|待补充?|待跑|未完成)$", re.I
)
OPEN_LINE = re.compile(
    r"^[（(\[]?\s*(?:tbd|tba|to-?do|to be (?:filled in|done)|not (?:run|finished) yet|pending"
    r"|待填充?|待补充?|待跑|未完成)(?:\W{0,2}(?:待跑|待填充?|pending))?\s*[)）\]]?[.。]?$",
    re.I,
)

SCORING = re.compile(
    r"^(.*?)\s*[(（]?\b(?:acc(?:uracy)?|score|em|f1|pass@\d+)\b[)）]?$|^(.*?)(?:准确率|正确率|得分)$",
    re.I,
)
"""Names of scores: the group is what was scored."""
CHANGE = re.compile(r"差异|变化|差值|^diff|difference|change|^delta|^Δ", re.I)
STEP = re.compile(r"^(?:(?:step|epoch|round|iteration)\s*(\d+)|第\s*(\d+)\s*(?:步|轮))$", re.I)
STEP_COLUMN = re.compile(r"^(?:steps?|epochs?|iterations?|轮次|步数?|轮数?)$", re.I)
ITEM_COLUMN = re.compile(r"^(?:n|items?|samples?|sample size|样本[数量]|题数)$", re.I)
RUN_COLUMN = re.compile(r"^(?:model|method|run|system|experiment|模型|方法|实验|方案)s?$", re.I)
CELL_COLUMN = re.compile(
    r"^(?:benchmark|dataset|data set|task|metric|基准|评测集|数据集|任务|指标)s?$", re.I
)
SETTING_COLUMN = re.compile(
    r"^(?:parameter|setting|hyper-?parameter|option|参数|超参数|配置项)s?$", re.I
)
CONDITION_COLUMN = re.compile(r"^(?:configuration|condition|setting|arm|配置|条件)s?$", re.I)

SETTING_NAMES: dict[str, re.Pattern[str]] = {
    "data": re.compile(
        r"^(?:rl |sft |training |train )?(?:data|data ?file|data ?set|数据文件|数据集?|训练数据)$",
        re.I,
    ),
    "base": re.compile(
        r"^(?:base|base model|base checkpoint|基础\s*checkpoint|基座|基础模型|底座)$", re.I
    ),
}
"""Names under which tables set what every report sets."""
FILE = re.compile(r"[A-Za-z0-9_.-]+\.(?:jsonl?|parquet|csv|toml)\b")

CONDITION = re.compile(r"\b([A-Za-z][A-Za-z_]*)\s*=\s*(\d+(?:\.\d+)?(?:e-?\d+)?)", re.A)
MORE_VALUES = re.compile(
    r"\s*(?:vs\.?|和|与|、|and|/|,|or)\s*(\d+(?:\.\d+)?)(?![\w.%=])", re.I | re.A
)
COUNTED = re.compile(r"\b(epoch|round|iteration)\s*(\d+)\b|第\s*(\d+)\s*轮", re.I | re.A)
MORE_COUNTED = re.compile(r"\s*(?:和|与|、|and|/|,)\s*(?:epoch\s*)?(\d+)(?![\w.%])", re.I | re.A)

QUOTED: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "trainer": tuple(
        (re.compile(rf"(?<![\w./-]){name}(?![\w./-])", re.I), name)
        for name in ("ms-swift", "verl", "trl", "llama-factory", "openrlhf", "unsloth", "axolotl")
    ),
    "method": tuple(
        (re.compile(rf"(?<![A-Za-z]){name}(?![A-Za-z])"), name)
        for name in ("SFT", "EGPO", "GRPO", "PPO", "DPO", "RFT", "RCE")
    ),
    "adapt": (
        (re.compile(r"(?<![A-Za-z])lora(?![A-Za-z])", re.I), "lora"),
        (re.compile(r"全量|full (?:fine-?tun|sft|ft)", re.I), "full"),
    ),
    "loss_on": (
        (re.compile(r"所有回复|all (?:responses?|replies|turns)", re.I), "all replies"),
        (re.compile(r"最后一轮|last (?:response|reply|turn)", re.I), "last reply"),
    ),
}
"""Settings as free text names them: the first pattern found gives the value."""
DATA = re.compile(
    r"(?<![\w.-])([A-Za-z][A-Za-z_-]{2,})\s+(\d+(?:\.\d+)?[kKmM]|\d{3,}(?![\w.%]))", re.A
)
NOT_DATA = frozenset(
    {"step", "steps", "epoch", "top", "than", "the", "about", "seed", "shot", "gpu"}
)
BASE = re.compile(
    r"\b((?:Qwen|Llama|Mistral|Gemma|Phi|SmolLM|DeepSeek)[A-Za-z]*[\d.-][A-Za-z0-9.-]*)", re.A
)

EFFECTS: tuple[tuple[re.Pattern[str], Verdict], ...] = (
    (
        re.compile(
            r"没有(?:\S{0,2})效果|无效|没有提升|no (?:effect|gain)|does not help|ineffective", re.I
        ),
        "same",
    ),
    (
        re.compile(r"效果(?:都)?(?:很|最)?差|变差|降低了?$|hurts|harmful|makes? it worse", re.I),
        "worse",
    ),
    (re.compile(r"有效(?!率)|有效果|effective|helps\b|works\b|improves\b", re.I), "better"),
)
"""Words for an effect, in the order in which they are tried."""
HEDGED = re.compile(
    r"^(?:几乎|基本|似乎|almost |apparently )?"
    r"(?:没有(?:\S{0,2})效果|无效|没有提升|有效果|有效(?!率)|效果(?:很|最)?差|no (?:effect|gain)"
    r"|ineffective|effective|works\b|helps\b|does not help|hurts\b)",
    re.I,
)
"""An effect with which the words after a colon begin."""
PLANS = re.compile(r"建议|计划|应[该当]?|需要|should|plan|will\b|recommend", re.I)
PROVES = re.compile(
    r"(?:证明了?|shows? that|proves? that)\s*(.{2,60}?)(?:非常|完全|很|is |are )?\s*"
    r"(?:有效|works?\b|effective)",
    re.I,
)
BEATS = re.compile(
    r"(?:超过了?|优于|超越|outperforms?|beats?|better than|surpass(?:es)?)"
    r"[^，,。;；]{0,30}?(?:baseline|基线)",
    re.I,
)
LABELLED = re.compile(r"^(.{2,80}?)[:：]\s*(.+)$")
BETTER = re.compile(r"[好高优]|better|higher|above|outperform", re.I)
WORSE = re.compile(r"[差低]|worse|lower|below", re.I)
RATHER = re.compile(r"(比|\bthan\b)", re.I)
AGAINST = re.compile(
    rf"(?:vs\.?|than|优于)\s*([A-Za-z][\w.-]*)\s*[(（]?\s*[:：]?\s*\+?({NUMBER})\s*[%％]?\s*[~–至-]\s*\+?({NUMBER})\s*[%％]"
)
SIZES = re.compile(r"(?<![\d.])(\d{2,}(?:\s*/\s*\d{2,}){1,})\s*(?:条|个|题|samples|items|rows)")

RISES = re.compile(r"增加|上升|升高|increas|ris(?:es|ing)|grow", re.I)
FALLS = re.compile(r"下降|降低|减小|decreas|fall|drop|declin", re.I)
AWAY = re.compile(r"偏离|远离|moves? away|drift|diverg", re.I)
TOWARDS = re.compile(r"靠近|接近|回到|moves? (?:back|closer|towards)", re.I)
LEARNS = re.compile(
    r"(?:模型|策略|model|policy)\S{0,4}\s*(?:在|is|are)?\s*(?:学习|learn|improv)", re.I
)

LEADS_TO = re.compile(r"导致|leads? to|leading to|causes?\b|causing", re.I)
PER_STEP = re.compile(
    rf"[$¥€£]?\s*({NUMBER})\s*/\s*(?:step|步)\s*[×x*]\s*(\d+)\s*(?:steps?|步)\s*=\s*[$¥€£]?\s*({NUMBER})",
    re.I,
)
LIMIT = re.compile(rf"^(?:\[x\]\s*)?(.{{2,40}}?)\s*[:：]?\s*([<>≤≥])\s*({NUMBER})\s*[%％]")
OPEN_BOX = re.compile(r"^\[ \]")
AT_STEP = re.compile(r"^step\s*(\d+)\s*[:：]?$", re.I)
OVERALL = re.compile(
    rf"(?:总体评分|综合评分|总分|overall (?:score|rating|mark))\s*[:：]\s*({NUMBER})\s*/\s*\d", re.I
)
GRID = re.compile(r"^\s*\w+\s*=\s*\[([^\[\]]+)\]\s*$")
TOTAL = re.compile(r"^(?:总|total\s*)(.+)$", re.I)
AVERAGE = re.compile(r"^(?:平均|average\s*|mean\s*)(.+)$", re.I)
PARENTHESES = re.compile(r"[(（][^()（）]*[)）]")
NUMBERING = re.compile(r"^(?:\d+(?:\.\d+)*[.)、]?|[一二三四五六七八九十]+、|[A-Z][.、])\s+")
EMOJI = re.compile(r"[\u2600-\u27bf\U0001f300-\U0001faff\ufe0f\u2b00-\u2bff]")


def decimal(text: str) -> Decimal:
    """A number as printed; a typographic minus counts as one."""
    return Decimal(text.replace("−", "-"))


READS: tuple[tuple[re.Pattern[str], Reading], ...] = (
    (AWAY, "away"),
    (TOWARDS, "towards"),
    (LEARNS, "better"),
)
"""What a line concludes from the course of a metric."""

MEANINGS: tuple[tuple[re.Pattern[str], Meaning], ...] = (
    (re.compile(r"(?<![A-Za-z_])KL(?![A-Za-z_])"), "distance"),
    (re.compile(r"(?:ppo|policy|pg)[ _]?loss|策略损失", re.I), "policy loss"),
    (re.compile(r"loss|损失", re.I), "loss"),
    (re.compile(r"错误|error|fail", re.I), "error rate"),
    (re.compile(r"成本|费用|cost", re.I), "cost"),
    (re.compile(r"正确|准确|acc|score|得分|success", re.I), "score"),
)
"""What a metric's name says that it measures: the first pattern found decides."""

TRENDS: tuple[tuple[re.Pattern[str], Reading], ...] = (
    (re.compile(r"改善|完美|提升|improv|better", re.I), "better"),
    (re.compile(r"恶化|变差|worse", re.I), "worse"),
    (re.compile(r"稳定|保持|stable|steady", re.I), "stable"),
)
"""Words beside a row of readings."""

LOSS_ROLES = {
    "loss": re.compile(r"^(?:train(?:ing)?|total|actor)?[ _]?loss$|^总损失$", re.I),
    "part": re.compile(r"^(?:ppo|policy|pg)[ _]?loss$|^策略损失$", re.I),
    "coefficient": re.compile(r"^(?:kl[ _]?)?(?:beta|coef\w*|β)$", re.I),
    "term": re.compile(r"^KL(?:[ _]?(?:loss|div\w*))?$", re.I),
}
"""Columns of a training log that add up: loss = part + coefficient x term."""
