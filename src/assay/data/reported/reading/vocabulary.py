"""The vocabulary of logs, Chinese and English: column names by role, and what is not a score.

Data only: names of columns, settings, training metrics, runs and benchmarks. The words of
conclusions are in `conclusions`, `stated_claims` and `practice`.
"""

import re
from typing import Literal

from assay.data.reported.reported_record import Meaning, Reading

Role = Literal[
    "run",
    "benchmark",
    "score",
    "items",
    "correct",
    "excluded",
    "average",
    "change",
    "spread",
    "metric",
    "setting",
    "step",
    "seed",
    "notes",
    "says",
    "control",
    "ignored",
]


def word(terms: str) -> re.Pattern[str]:
    """A pattern of terms, separated by commas: whole words in English, anywhere in Chinese."""
    names = [term.strip() for term in terms.split(",") if term.strip()]
    latin = [name for name in names if name.isascii()]
    other = [name for name in names if not name.isascii()]
    parts = [rf"(?<![a-z])(?:{'|'.join(latin)})(?![a-z])"] if latin else []
    return re.compile("|".join([*parts, *other]), re.I)


WHOLE: dict[Role, re.Pattern[str]] = {
    "step": word(
        r"(?:global |train(?:ing)? )?steps?, epochs?, iter(?:ation)?s?, updates?, 轮次, 步数, "
        r"训练步数?, 迭代(?:次数)?, 步, 轮数?"
    ),
    "seed": word(
        r"seeds?, random seed, repeats?, trials?, replicates?, 随机种子, 种子, "
        r"重复(?:次数)?, 第几次"
    ),
    "notes": word(
        r"notes?, comments?, trend, status, 趋势, 状态, "
        r" remarks?, conclusions?, observations?, takeaways?, findings?, "
        r"reading, assessment, interpretation, 备注, 结论, 说明, 评论, 观察, 评价, 解读"
    ),
    "says": word(r"says, verdict"),
    "control": word(r"control, compared (?:with|to), versus, vs, 对照组?, 比较对象"),
    "items": word(
        r"n, # ?n, prompts?, cases?, attempted, tried, n prompts?, "
        r"(?:n )?(?:scored|graded|judged|counted|answered|attempted|completed|evaluated)"
        r"(?: (?:items|questions|samples|problems|tasks|prompts))?, "
        r"(?:n )?(?:items|samples|questions|prompts|tasks) "
        r"(?:scored|graded|per (?:set|task|suite)), "
        r"(?:每项|每个?任务|每集|各项)(?:样本|题|条)数?, "
        r"(?:计分|有效|参评|评分|判分|作答|完成)(?:题|条|样本|任务)?数, "
        r"(?:题目|样本|任务|用例|问题)总?数量?, 总(?:任务|用例)数, "
        r"num total, total num, 题量, 总题量, "
        r"总条数, 评测条数, 测试数, 总样本数?, 题目, "
        r"items?, # ?(?:items?|questions?|samples?|problems?|examples?|tasks?), "
        r"samples?, sample size, "
        r"n[ _]?(?:items|samples|questions|total|examples|problems|eval|test), "
        r"(?:num|number of|no\.? of|total|test) "
        r"(?:items?|samples?|questions?|problems?|examples?|tasks?), "
        r"total, questions?, problems?, examples?, size, count, denominator, evaluated, support, "
        r"样本数量?, 样本量, 总数, 题数, 题目数量?, 条数, 总题数, 数量, 测试题数, 评测题数, "
        r"测试条数, 样本"
    ),
    "correct": word(
        r"correct, right, hits?, passed, passes, solved, successes, wins, n[ _]?(?:correct"
        r"|right|passed|solved|ok), num (?:right|passed|solved), (?:success|hit|pass"
        r"|correct|right) count, ok, "
        r"# ?correct, num ?correct, (?:correct|right) (?:answers?|items|count), numerator, "
        r"n (?:resolved|accepted|exact), resolved, accepted, "
        r"正确(?:数量?|题数|条数|个数)?, 答对(?:题|条)?数?, 通过(?:数量?|用例数)?, 命中数?, "
        r"成功(?:数|次数)?, "
        r"做对(?:题数)?, 对题数"
    ),
    "excluded": word(
        r"(?:time-?outs?|errors?|failures?|parse failures?|refusals?|invalid|items?) "
        r"(?:excluded|skipped|dropped|removed), (?:超时|解析失败|拒答|失败|无效)(?:剔除|排除), "
        r"(?:n )?(?:timed out|no answer|unanswered|api errors?|aborted|crashed|timeouts?), "
        r"excluded, skipped, dropped, removed, time-?outs?, parse (?:failures?|errors?), "
        r"unparsed, unparsable, invalid, refusals?, errors?, failures?, crashes, unscored, "
        r"剔除数?, 排除数?, 跳过数?, (?:编译|运行|执行|生成|请求)?超时(?:数|题数)?, "
        r"(?:格式|编译|运行|调用)(?:错误|失败)数?, 解析失败数?, 无效数?, 拒答数?, 报错数?, "
        r"失败数?, 丢弃数?"
    ),
    "run": word(
        r"(?:base |language )?models?, systems?, methods?, checkpoints?, ckpts?, runs?, "
        r"run ?(?:names?|ids?), variants?, experiments?, exps?, exp ?names?, arms?, "
        r"approach(?:es)?, "
        r"polic(?:y|ies), recipes?, configs?, configurations?, conditions?, algorithms?, names?, "
        r"stages?, setups?, agents?, entr(?:y|ies), candidates?, settings?, strateg(?:y|ies), "
        r"模型, 方法, 版本, 系统, 检查点, 实验, 方案, 配置, 名称, 组别, 策略, 算法, 运行, 阶段, "
        r"模型名称, 实验名称?, 条件, 组, 设置, 权重"
    ),
    "benchmark": word(
        r"benchmarks?, tasks?, data ?sets?, suites?, evals?, evaluations?, test ?sets?, "
        r"categor(?:y|ies), subsets?, domains?, subtasks?, metrics?, subjects?, splits?, levels?, "
        r"task names?, bench, skills?, measures?, quantit(?:y|ies), 测试集, 任务, 基准, 评测集?, "
        r"数据集, 类别, 子集, 指标, 科目, 评测项, 评测任务, 难度, 领域, 基准测试, 评测基准, 测试, "
        r"项目, 集合, 评测集合, 场景, 语种, 方言"
    ),
}
"""Columns whose whole title has a role."""

PARTS: dict[Role, re.Pattern[str]] = {
    "ignored": word(
        r"hours?, minutes?, seconds?, time, wall ?clock, cost, usd, price, tokens?, tok/s, "
        r"length, len, elo, bleu, rouge, ppl, perplexity, gpus?, memory, mem, vram, gb, params?, "
        r"parameters, latency, throughput, speed, f1, bertscore, chrf, mt-?bench, turns?, calls?, "
        r"flops?, date, rank(?:ing)?, utili[sz]ation, mfu, size, rating, calibration, ece, brier, "
        r"correlation, spearman, pearson, kappa, train(?:ing)? acc\w*, sec, ms, s/step, it/s, "
        r"share of data, overlap, duplicat\w*, contaminat\w*, 耗时, 时间, 时长, 成本, 费用, 显存, "
        r"内存, 长度, 吞吐, 延迟, 速度, 参数量, 困惑度, 日期, 排名, 利用率, 词元, 占比, 轮数, "
        r"大小, 卡时, 评分, 训练集?准确率, 重复率"
    ),
    "metric": word(
        r"groups?, (?:equal|identical|same) rewards?, 奖励相同, 同分, "
        r"(?:error|failure|invalid|refusal|timeout|crash) rate, 错误率, 失败率, 拒答率, 报错率, "
        r"出错率, 超时率, 崩溃率, cumul\w*, so far, 累计, 累积, "
        r"since (?:the )?(?:start|launch|beginning), "
        r"loss, kl, kl[ _]?(?:div\w*|loss), rewards?, returns?, grad(?:ient)?[ _]?norm, entropy, "
        r"advantages?, zero[ _-]?std\w*, zero[ _-]?variance, clip[ _]?(?:frac\w*|ratio|rate), "
        r"frac\w* clipped, truncat\w*, without signal, no signal, dead groups?, "
        r"all[ _-]?(?:same|equal), 损失, 奖励, 回报, 梯度范数?, 熵, 零方差, 零标准差, 无信号, "
        r"无梯度, 截断, 裁剪率?, 散度"
    ),
    "change": word(
        r"Δ, δ, delta, diff\w*, change, gain, improvement, lift, vs\.? .*, over base\w*, 提升, "
        r"变化, 差异, 增益, 差值, 涨幅, 增幅, 增量, 相比.*, 较基线.*, 变动"
    ),
    "spread": word(
        r"std, stdev, sd, se, stderr, std\.? ?(?:dev|err)\w*, standard (?:error|deviation), ci, "
        r"95 ?%.*, interval, lower, upper, low, high, margin, p[ -]?values?, p, ±.*, min, max, "
        r"置信区间, 标准差, 标准误, 方差, 误差, 下界, 上界, 区间, p 值, p值"
    ),
    "average": word(
        r"avg\.?, average, mean, macro(?:[ -]?avg)?, overall, 平均值?, 均值, 总体, 综合, 总分, "
        r"总平均"
    ),
    "score": word(
        r"values?, 数值, "
        r"acc\.?, accuracy, score, em, exact[ _]?match, pass ?@ ?\d+, pass[ _]?rate, "
        r"success[ _]?rate, success, win[ _]?rate, solve[ _]?rate, hit[ _]?rate, "
        r"(?:correct|right) ?(?:rate|%), maj@\d+, percent(?:age)?(?: correct)?, pct, "
        r"% ?(?:correct|solved|passed)?, result, solved %, avg@\d+, mean@\d+, accuracies, "
        r"(?:completion|resolve[d]?|task|answer) (?:rate|acc\w*), rate, 准确率, 正确率, 通过率, "
        r"成功率, 得分, 分数, 胜率, 完成率, 精度, 解题率, 命中率, 答对率, 结果, 成绩, 百分比"
    ),
}
"""Columns of whose title a part has a role; what is left names the benchmark or the run."""

SETTINGS: dict[str, re.Pattern[str]] = {
    "data": word(
        r"(?:rl |sft |train(?:ing|ed)? )(?:on|data ?(?:set|file)?s?|set|corpus), data, "
        r"data ?(?:file|mix|size|version), train ?sets?, corpus, 训练数据集?, 数据, 训练集, "
        r"数据量, 数据文件, 训练语料"
    ),
    "base": word(
        r"base(?: model| checkpoint| ckpt)?, init(?:iali[sz]ation|ial model)?, "
        r"start(?:ing point)?, backbone, 基座(?:模型)?, 基础模型, 底座, 初始化, 起点, "
        r"generator, 生成器"
    ),
    "learning_rate": word(r"lr, learning rate, peak lr, 学习率"),
    "beta": word(r"beta, β, kl ?(?:coef\w*|beta|weight|penalty), kl ?系数"),
    "batch_size": word(
        r"batch(?: ?size)?, bs, global batch(?: size)?, 批大小, 批次大小, 批量(?:大小)?"
    ),
    "epochs": word(r"(?:num |train(?:ing)? )?epochs, 训练轮数, 轮数"),
    "steps": word(r"(?:max|train(?:ing)?|num|total) steps, 训练步数, 总步数"),
    "group": word(r"group(?: ?size)?, rollouts?(?: per prompt)?, num generations, 组大小, 采样数"),
    "rank": word(r"(?:lora )?r(?:ank)?, lora rank, lora ?秩"),
    "temperature": word(r"temp(?:erature)?, sampling temp\w*, t, 温度, 采样温度"),
    "top_p": word(r"top[ -]?p"),
    "prompt": word(
        r"(?:system )?prompt(?: ?template| version)?, chat template, template, 提示词?, 模板, "
        r"系统提示词?"
    ),
    "shots": word(r"(?:n|num|few)?[ -]?shots?, 示例数, 样例数"),
    "decoding": word(r"decod(?:ing|er), sampling, 解码(?:方式)?, 采样方式"),
    "max_tokens": word(
        r"max (?:new )?tokens, max (?:response )?len(?:gth)?, 最大(?:生成)?长度, 最大 ?token 数?"
    ),
    "reward": word(r"reward (?:function|fn|type|design|model), 奖励(?:函数|设计|模型)"),
    "estimator": word(r"advantage(?: estimator)?, estimator, adv(?:antage)? ?est\w*, 优势估计"),
    "adapter": word(r"adapter, adapt, tuning, peft, 微调方式"),
    "optimizer": word(r"optimi[sz]er, 优化器"),
    "schedule": word(r"(?:lr )?sched\w*, warm-?up(?: steps| ratio)?, weight decay, 预热, 权重衰减"),
    "clip": word(
        r"clip(?:ping)?(?: ?(?:range|eps\w*|high|low|higher))?, eps(?:ilon)?(?: ?(?:high|low))?, "
        r"裁剪(?:范围|系数)?"
    ),
    "judge": word(r"judge, grader, scorer, verifier, harness, 评分器, 裁判(?:模型)?, 评测框架"),
    "curriculum": word(r"curriculum, 课程(?:学习)?"),
    "filter": word(r"filter(?:ing|ed)?, 过滤"),
    "trainer": word(r"trainer, framework, 训练框架, 框架"),
    "dropout": word(r"dropout"),
    "method": word(r"training method, 训练方法, 训练方式"),
}
"""Settings that a comparison can be confounded by: whole titles -> one key for each."""

COUNTED = re.compile(
    r"(?<![a-z])(?:correct|right|solved|passed|hits?|raw|counts?)(?:\s*/\s*(?:total|n|all"
    r"|items))?(?![a-z])"
    r"|(?:正确|答对|通过)数?(?:\s*/\s*总数)?|计数",
    re.I,
)
"""Titles of columns of counts such as `82/200`."""
DROPPED = re.compile(r"exclud|skip|drop|remov|left out|剔除|排除|跳过|丢弃", re.I)
"""Titles of items that do not count in a score."""
PARAMETER = word(
    r"(?:hyper-?)?param(?:eter)?s?, settings?, options?, hyper-?params?, keys?, fields?, 超?参数, "
    r"配置项?, 设置项?"
)
"""First column of a table of settings."""
VALUE = word("values?, 值, 取值, 数值, 设定")

CONTROL = re.compile(
    r"(?<![a-z])(?:base(?:line)?|control|vanilla|original|untrained|zero[- ]?shot"
    r"|pre-?trained|init(?:ial)?|reference"
    r"|before(?: training)?)(?![a-z])|基线|对照|基准模型|基座|原始模型|原模型|未训练|训练前"
    r"|初始模型",
    re.I,
)
"""Names of the run that others are compared with."""
RUN_LIKE = re.compile(
    r"(?<![a-z])(?:base(?:line)?|sft|grpo|ppo|dpo|rft|rce|rloo|gspo|dapo|egpo|orpo|kto|lora"
    r"|full|ours?|model|ckpt|checkpoint|step"
    r"|epoch|run|seed|exp|variant|v\d+|qwen|llama|mistral|gemma|phi|smollm|gpt"
    r"|deepseek|arm|tuned|finetuned"
    r"|trained|reinforce|distill\w*|rl|vanilla|control|zero-shot)(?![a-z])|\d[bB](?![a-z])"
    r"|基线|微调|训练|模型|强化|蒸馏|对照|基座|方案|实验|全量",
    re.I,
)
BENCH_LIKE = re.compile(
    r"gsm|math|aime|(?<![a-z])amc|mmlu|(?<![a-z])arc(?![a-z])|hella|wino|bfcl|human-?eval"
    r"|mbpp|if-?eval|bbh|gpqa|truthful|olympiad|minerva"
    r"|c-?eval|cmmlu|squad|triviaqa|boolq|piqa|tau-?bench|swe|livecode|codeforces|bench|svamp"
    r"|asdiv|countdown"
    r"|qa(?![a-z])|(?<![a-z])(?:test|dev|val|held[- ]?out|easy|medium|hard|ood|id)(?![a-z])"
    r"|测试|评测|集$|题$|任务",
    re.I,
)
"""Names by which runs and benchmarks are separated where a table's first column has no title."""

TOLD = re.compile(
    r"(?<![a-z])(?:base(?:line)?|vanilla|untrained|pre-?trained|sft|grpo|ppo|dpo|rft|rce"
    r"|rloo|lora|fine-?tuned"
    r"|fine-?tuning|distilled)(?![a-z])|基线|基座|原始模型|微调后?|强化学习|蒸馏",
    re.I,
)
"""Runs as sentences name them where no table does."""
NOT_TEST = re.compile(
    r"(?<![a-z])(?:dev|val(?:id(?:ation)?)?|train(?:ing)?)(?![a-z])|验证|开发集|训练", re.I
)
"""Scores of other items than the test's."""

MEANINGS: tuple[tuple[re.Pattern[str], Meaning], ...] = (
    (
        re.compile(
            r"zero[ _-]?(?:reward[ _-])?(?:std|variance|adv)|(?:no|without"
            r"|zero)[ _-]?(?:signal|gradient)"
            r"|dead groups?|(?:same|identical|equal|no difference in|one) (?:reward|score)"
            r"|(?:reward|score)s? (?:all )?(?:tied|identical|equal|the same)|tied groups?"
            r"|uninformative"
            r"|saturated|zero[ _-]?spread|(?:std|variance|advantage)\s*(?:=|==|of)?\s*0"
            r"|flat groups?"
            r"|all[ _-]?(?:same|equal|correct[ _]or)|(?:equal|identical|same)[ _-]rewards?"
            r"|degenerate|no[ _-]spread|奖励相同|全部相同|同分|零方差|零标准差|无信号"
            r"|无梯度|全对|全错|全(?:部|都)?(?:相同|一样|一致)|(?:奖励|reward|得分|分数)\S{0,4}(?:相同|一样|一致)"
            r"|(?:优势|advantage|方差|标准差|std)\s*(?:全?为|=|是)\s*(?:0|零)|零优势|没有差异|无差异|饱和",
            re.I,
        ),
        "groups without signal",
    ),
    (
        re.compile(
            r"grad(?:ient)?[ _]?norm|advantages?|reward[ _]?std|梯度范?数?|奖励标准差", re.I
        ),
        "signal",
    ),
    (re.compile(r"(?<![a-z])kl(?![a-z])|散度", re.I), "distance"),
    (re.compile(r"(?:ppo|policy|pg|actor)[ _]?loss|策略损失", re.I), "policy loss"),
    (re.compile(r"loss|损失", re.I), "loss"),
    (
        re.compile(r"错误|报错|出错|超时|error|fail|失败|time-?out|crash|invalid", re.I),
        "error rate",
    ),
    (re.compile(r"成本|费用|cost", re.I), "cost"),
    (re.compile(r"正确|准确|acc|score|得分|success|reward|奖励|成功|通过|pass", re.I), "score"),
)
"""What a metric's name says that it measures: the first pattern found decides."""

TRENDS: tuple[tuple[re.Pattern[str], Reading], ...] = (
    (re.compile(r"改善|提升|变好|improv|better", re.I), "better"),
    (re.compile(r"恶化|变差|worse|degrad", re.I), "worse"),
    (re.compile(r"稳定|保持|stable|steady", re.I), "stable"),
)
"""Remarks beside a metric's readings."""
CUMULATIVE = re.compile(
    r"cumul|so far|since (?:the )?(?:start|launch|beginning|step 0|boot)|running (?:total|count)"
    r"|累计|累积|从启动起|自启动|从头",
    re.I,
)
"""Metrics that count from the start."""
MANY = word(
    "(?:n |num |# ?|number of )?(?:seeds|repeats|trials|passes), n seed, 种子数, 重复次数, 次数"
)
"""Columns that say how many passes a score is the mean of."""
MEAN = re.compile(r"(?<![a-z])(?:mean|avg|average)(?![a-z@])|平均|均值", re.I)
DEVIATION = word("std, stdev, sd, stderr, std\\.? ?(?:dev|err)\\w*, 标准差, 标准误")
LOSS_ROLES = {
    "loss": re.compile(r"^(?:train(?:ing)?|total|actor)?[ _]?loss$|^总损失$", re.I),
    "part": re.compile(r"^(?:ppo|policy|pg)[ _]?loss$|^策略损失$", re.I),
    "coefficient": re.compile(r"^(?:kl[ _]?)?(?:beta|coef\w*|β)$", re.I),
    "term": re.compile(r"^KL(?:[ _]?(?:loss|div\w*))?$", re.I),
}
"""Columns of a training log that add up: loss = part + coefficient x term."""
