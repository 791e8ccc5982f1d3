"""com.microsoft.Tokenizer by itself: expressions, separators and characters, with marks and lengths; and expressions made at random. ONNX Runtime (which uses RE2) decides."""
import itertools
import numpy as np
import onnxruntime as ort
from onnx import TensorProto as TP, helper
from case import model, session

TEXTS = ["the card was refused", "The CARD, again!", "", " ", "x", "a-b  c_d", "éa ñ 日本語 straße", "𝔘nicode 😀 fin", "line one\nline two\r\n", "aababb", "1 22 333 4444", "tab\there", "ſK k K s S", "..", "a.b.c"]
EXPRESSIONS = ["[a-zA-Z0-9_]+", r"\w+", r"\b\w\w+\b", r"[^ ]+", r"[^\W\d_]+", r"\S+", r"(?i)[a-k]+", r"(?i)k|s", r"(?i:k)s?", r"\d{2,3}", r"\d{2}", r"a*", r"a+?b", r"(a|ab)(b|ba)*", r"^\w+", r"\w+$", r"(?m)^\w+$", r"(?s)e.l", "e.l",
               r"\Bo\B", r"\A.", r".\z", r"(?P<word>\w)\w", r"[[:alpha:]]+", r"[[:^space:]]+", r"[]a]+", r"[a-]+", r"[\x{e9}\x61\n]+", r"\x41|\101|\t", r"[^a-z]", r"", "日|本語|a", r"(?:ab){1,2}", r"(?:a|b|c|){3}", r"x{2", r"\.|\-", r"[é-ñ]+", r"(?i-s:C.R)d"]
SEPARATORS = [[" "], [" ", ","], [",", " ", r"\."], [""], ["", "a"], [r"\s+"], ["a", "ab"], ["ab", "a"], ["."], ["[.]", r"\?", "!"], ["x*"], ["日", "é"]]
ALPHABET = ["a", "b", "é", "1", " ", "_", "日", "B", "\n"]


def tokenizer(x, **attributes):
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **attributes)
    m = model([node], [("x", TP.STRING, [None] * x.ndim)], [("y", TP.STRING, None)])
    m.opset_import.extend([helper.make_opsetid("com.microsoft", 1)])
    return m


def expression(rng, depth=0):
    """Something RE2 reads, mostly."""
    kind = rng.integers(0, 12 if depth < 4 else 6)
    one = lambda: expression(rng, depth + 1)
    letter = lambda: ALPHABET[rng.integers(0, len(ALPHABET))]
    if kind < 3:
        return letter()
    if kind < 6:
        return [".", r"\w", r"\b", "^", "$", r"\W", r"\s", r"[^a]", "[ab]", r"[^\wé]", r"\B", r"[a-z日]"][rng.integers(0, 12)]
    if kind < 9:
        return one() + one()
    if kind == 9:
        return "(" + one() + "|" + one() + ")"
    return "(?:" + one() + ")" + ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?", "{2,}"][rng.integers(0, 8)]


def generate(cases, rng):
    x = np.array(TEXTS, object)
    for (i, e), (mark, least) in itertools.product(enumerate(EXPRESSIONS), ((0, 1), (1, 2))):
        if e:
            cases.add(f"token_expression_{i}_{mark}", tokenizer(x, tokenexp=e, mark=mark, mincharnum=least, pad_value="#" if mark else ""), [x])
    for (i, s), (mark, least) in itertools.product(enumerate(SEPARATORS), ((0, 1), (1, 2))):
        if s != [""] or least == 1:
            cases.add(f"token_separators_{i}_{mark}", tokenizer(x, separators=s, mark=mark, mincharnum=least, pad_value="PAD"), [x])
    for i, (mark, some) in enumerate(itertools.product((0, 1), (x[:, None], x[:12].reshape(3, 4), np.array(["", "!"], object), np.empty((0, 3), object), np.empty((2, 0), object), np.empty(0, object)))):
        cases.add(f"token_shape_{i}", tokenizer(some, tokenexp="[a-z]+", mark=mark, mincharnum=1, pad_value="#"), [some])
        cases.add(f"token_chars_{i}", tokenizer(some, tokenexp=".", mark=mark, mincharnum=1, pad_value="#"), [some])
    texts = np.array(["".join(ALPHABET[k] for k in rng.integers(0, len(ALPHABET), rng.integers(0, 12))) for _ in range(40)], object)
    for i in range(200):
        e = expression(rng)
        m = tokenizer(texts, mark=0, mincharnum=int(rng.integers(1, 3)), pad_value="#", **({"tokenexp": e} if i % 3 else {"separators": [e, "a"]}))
        try:
            session(m)
        except Exception:  # not RE2's syntax, or a character at a time with a least length
            continue
        cases.add(f"token_random_{i}", m, [texts])
