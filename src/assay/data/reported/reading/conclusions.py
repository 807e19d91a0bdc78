"""The words of conclusions, Chinese and English: better, worse, the same, hedges."""

import re

BETTER = re.compile(
    r"(?<![a-z])(?:better|beat(?:s|en|ing)?|outperform(?:s|ed|ing)?|surpass(?:es|ed)?"
    r"|exceeds?|improve[sd]?(?: (?:on|over|upon))?|improvement|wins?|won|ahead"
    r"|higher|stronger|superior|gain(?:s|ed)?|leads|helps|helped|lifts?|raises?|raised"
    r"|boosts?|boosted|is effective|has an effect|works|best(?:s|ed)?(?= \w)|winner|winning"
    r"|edges? (?:out|past)|edged (?:out|past)|tops|topped|overtakes?|overtook|trumps|dominates"
    r"|pays? off|paid off|strongest|comes? out on top|came out on top|pulls? ahead"
    r"|stands? out)(?![a-z])"
    r"|有效(?!率)|优于|超过|超越|提升|更好|胜过|领先|高于|更高|更强|好于|强于|改善|压过|胜出|完胜"
    r"|碾压|赢过|赢了|反超|甩开|占优|更优|更胜一筹|最好|最强|最优|变好|涨了|上涨|见效|起作用|进步"
    r"|比[^，,]{1,30}(?:好|高|强|准)",
    re.I,
)
WORSE = re.compile(
    r"(?<![a-z])(?:worse|hurts?|drop(?:s|ped)?|degrade[sd]?|lower|weaker|inferior|behind"
    r"|loses?|lost|harms?|declines?|declined|regress(?:es|ed|ion)?|underperform(?:s|ed)?"
    r"|below|falls?|fell|trails?|lags?|loses out|worst|weakest)(?![a-z])"
    r"|不如|下降|变差|更差|低于|逊于|差于|退步|落后|降低|更低|更弱|掉点|变弱|最差|比[^，,]{1,30}(?:差|低|弱)",
    re.I,
)
SAME = re.compile(
    r"(?<![a-z])(?:(?:is|are|about|performs?|scores?|does) (?:exactly |roughly "
    r"|just )?the same(?! (?:\d|items|questions|prompts?|data|seeds?|test|set|problems"
    r"|settings?|budget|harness|model|size))|the same (?:scores?|accuracy|results?"
    r"|level) as|equals?(?: to)?|equally (?:good|well|strong)|(?:is|are) identical"
    r"|identical (?:to|scores?|results?|accuracy)|no (?:\w+ )?(?:difference|effect|gain"
    r"|improvement|change)|as (?:good|strong|accurate|well) as|on par|matches"
    r"|equivalent|indistinguishable"
    r"|does not (?:help|hurt|matter)|ineffective|makes no difference|unaffected"
    r"|no (?:\w+ )?regression|unchanged|preserv(?:es|ed)|retain(?:s|ed)|intact"
    r"|did not (?:hurt|change|degrade|help|matter))(?![a-z])"
    r"|持平|无差异|无效(?!果)|没有(?:任何|什么)?(?:损失|影响|差异|效果|提升|变化|区别)|无影响"
    r"|无效果|(?<!题目)(?<!题)(?<!设置)(?<!数据)(?<!配置)(?<!条件)(?:相同|一样(?:好|差|准|强)?)(?!的|[题提数设种条])|相当|不影响|没有(?:下降|退化|掉点|变差)|未(?:下降|变差|退化|掉点)|不变|毫无",
    re.I,
)
DOUBTED = re.compile(
    r"(?<![a-z])(?:not (?:statistically |yet )?(?:significant|decided|distinguishable"
    r"|conclusive|enough|sure|clear|separable|resolved|shown|established|evidence|claim)\w*"
    r"|insignificant"
    r"|noise|noisy|undecided|inconclusive|unclear|no (?:\w+ )?(?:claim|conclusion|evidence"
    r"|verdict|ranking|significant)\w*|cannot|can't|can not|could|may|might|maybe|perhaps"
    r"|possibly|whether|hypothes\w*|suggests?|appears?|seems?|probably|likely|overlap\w*"
    r"|too (?:few|small|close)|neither|nor|within (?:the )?(?:error|interval|margin|ci)"
    r"|contains? (?:0|zero)"
    r"|include[sd]? (?:0|zero)|tentative\w*|do(?:es)? not (?:claim|conclude|say|show)"
    r"|don't (?:claim|conclude|say)|smallest)(?![a-z])|\?"
    r"|不显著|未达显著|无显著|没有显著|噪声|不能|无法|尚不|尚未|不足以|可能|也许|是否|不下结论|不做结论|未定|难以|重叠|区间(?:包含|跨)"
    r"|待验证|似乎|不确定|不宜|假设|？|不作|不声称|未见显著|说明不了|误差范围",
    re.I,
)
PLANNED = re.compile(
    r"(?<![a-z])(?:if|would|should|hope[ds]?|expect(?:ed|s)?|plan(?:s|ned)?|next|will)(?![a-z])"
    r"|预计|计划|希望|如果|若|应该|期望",
    re.I,
)
"""Marks plans and expectations; statements before it in the sentence still count."""
HENCE = re.compile(
    r"[,，;；:：]\s*(?:and |and so |so|therefore|thus|hence)(?=\s+(?:we|i|the|it|that|let))"
    r"(?:\s+that)?"
    r"|[,，;；]\s*(?:and )?we (?=will|should|plan|expect)"
    r"|[，,；]?(?:所以|因此|因而|于是|故而)|，(?=计划|建议|下一?步)",
    re.I,
)
"""Introduces a consequence of the statement before it."""
NOT = re.compile(
    r"(?<![a-z])(?:not|never|no longer|isn't|doesn't|didn't|wasn't|without|rather than|no"
    r"|hardly|barely)\s+(?:\w+\s+){0,2}$|(?:不|没有|没|未|并非|无)[^，,]{0,2}$",
    re.I,
)
SUPERLATIVE = re.compile(
    r"(?<![a-z])(?:best(?! (?:checkpoint|ckpt|step|epoch|seed|run of|of))|strongest|winner|wins|won"
    r"|tops|topped|on top|leads|ahead of (?:the rest|all|everything|every)"
    r"|beats (?:all|every|the rest)"
    r"|stands? out|dominates|(?:is|performs|does|looks) (?:\w+ )?(?:better|stronger))(?![a-z])"
    r"|更好|更强|更优|最好|最强|最优(?!化)|胜出|夺冠|第一|完胜|碾压",
    re.I,
)
"""Compares one run with all others."""
GAINED = re.compile(
    r"[+＋]\s?\d+(?:\.\d+)?|\d+(?:\.\d+)?\s*(?:pp|pts?|points?|percentage points?)(?![a-z])"
    r"|\d+(?:\.\d+)?\s*个?(?:百分)?点",
    re.I,
)
"""A change in points."""
PERCENTAGE = re.compile(
    r"(?<![\d.+−–-])(\d{1,3}\.\d+|\d{1,3}(?=\s*[%％]))(?!\d|\.\d|\s*(?:points?|pp|pts|个))"
)
"""A score in a sentence: with a percent sign, or with decimals."""
FROM = re.compile(r"(?:(?<![a-z])(?:from|moving|going|switching)\s+(?:the\s+)?|[从由把]\s*)$", re.I)
TO = re.compile(r"^\s*(?:to|→|->|换[到成为]|改[成为]|升[到级至]+|到|变[成为])\s*(?:the\s+)?$", re.I)
EFFECT = re.compile(
    r"(?<![a-z])(?:no effect|has an effect|is effective|ineffective|works)(?![a-z])"
    r"|有效(?!率)|无效(?![果])|没有(?:什么)?效果|无效果",
    re.I,
)
"""Compares one run with the baseline."""
OBJECT = re.compile(
    r"(?<![a-z])(?:than|over|versus|vs\.?|against|compared (?:to|with)|relative to|as"
    r"|on par with|behind|below|above|ahead of|upon|from|the|to)(?![a-z])"
    r"|比|相比于?|较|相对于?|有效(?!率)|优于|超过|超越|胜过|不如|低于|高于|逊于|差于|好于"
    r"|领先于?|和|与|于",
    re.I,
)
LISTED = re.compile(
    r"^\s*(?:,|，|、|and|&|/|和|与|以及|及|,\s*and|both|the|runs?|models?)*\s*$", re.I
)
CLAUSE = re.compile(
    r"(?:,|，)?\s*(?<![a-z])(?:but|while|whereas|however|although|though|yet)(?![a-z])\s*,?"
    r"|，?(?:但是?|而(?!且)|然而|不过|却)|[;；]",
    re.I,
)
BASELINE = re.compile(
    r"(?<![A-Za-z0-9_-])(?:the )?(?:base(?:line)?|control)(?: model| run"
    r"| checkpoint)?(?![A-Za-z0-9_-])|基线(?:模型)?|对照(?:组)?|基座(?:模型)?|原始?模型",
    re.I,
)
PAIRED = re.compile(r"(?<![a-z])(?<!un)paired|mcnemar|item by item|per-item|逐题|配对", re.I)
P_VALUE = re.compile(
    r"(?<![a-z])p\s*(?:值|-?value)?\s*(?:为|of|is)?\s*([=<＝＜≈])\s*(0?\.\d+)", re.I
)
CREDIT = re.compile(
    r"(?<![a-z])(?:thanks to|due to|because(?: of)?|comes? from|came from|attribut\w+ to"
    r"|explained by|caused by|credit(?:ed)? to|owing to|is down to|result of"
    r"|driven by|made the difference|what (?:helped|did it|worked)(?: (?:here|was|is))*"
    r"|the reason is)(?![a-z])"
    r"|得益于|归功于|归因于|源于|来自于?|来源于|由于|因为|靠的是|归结于|主要靠|全靠|就够了",
    re.I,
)
"""What comes after is a cause and no claim of its own."""
CREDITED = re.compile(
    r"(?<![a-z])(?:(?:is|was|are|were) (?:what|the thing that|the one that) (?:made|helped"
    r"|did|worked"
    r"|drove|gave|brought)|explains?|explained(?! by)|accounts? for|accounted for|(?:is"
    r"|was) responsible for"
    r"|(?:is|was) behind|bought us|buys us|brought|brings|gave us|gives us|contributed|contributes"
    r"|(?:is|was) the (?:reason|cause|driver)|(?<!what )made the difference)(?![a-z])"
    r"|带来了?|贡献了?|功不可没|起了?(?:决定性|关键|主要)?作用|是(?:关键|主因|主要原因)|的功劳",
    re.I,
)
"""What comes before is a cause."""
AGAINST = re.compile("compared|relative|相比|比|较", re.I)
OTHER_METRIC = re.compile(
    r"(?<![a-z])(?:faster|slower|cheaper|loss|kl|reward|entropy|tokens?|length|shorter|longer"
    r"|latency|memory|speed|time|cost|hours|perplexity|throughput|elo|f1|bleu|rouge|stable"
    r"|parse|format|variance|stability|compute)(?![a-z])"
    r"|(?<!任何)(?<!没有)(?<!无)损失|奖励|熵|长度|耗时|时间|成本|显存|速度|更快|更慢|稳定|格式|吞吐|困惑度",
    re.I,
)
"""What a sentence may compare that is no score."""


def hedged(text: str) -> bool:
    """Whether a sentence doubts, asks or plans what it says."""
    return bool(DOUBTED.search(text) or PLANNED.search(text))
