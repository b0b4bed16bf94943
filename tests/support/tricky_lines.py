"""Made-up lines of text that tokenizers often get wrong, as bytes, some of them not UTF-8.

None holds the text of a special token, which Hugging Face's tokenizers turn into its id.
"""

import random

WORDS = """
the The THE cat's CAT'S don't I'll we've They'RE 'tis o'clock it'ſ ſtraße Straße STRASSE
ẞ
İstanbul ISPARTA ısı DŽ ǅ ﬁne ﬀ ﬃ Ŀ ŉ Ωmega ΟΔΥΣΣΕΥΣ Σ σς ΑΣ. naïve café cafe\u0301
re\u0301sume\u0301
Å A\u030a \u212b Việt Đà tiê\u0301ng q\u0307\u0323 q\u0323\u0307
zalgo\u0300\u0301\u0302\u0303\u0315\u0489 o\u0338 ﷺ
हिन्दी क्षत्रिय বাংলা தமிழ் ไทยแลนด์ น้ำ ພາສາລາວ မြန်မာ ភាសាខ្មែរ བོད་ཡིག አማርኛ ქართული
ᲐᲑ Հայերեն
العربية عَرَبِيّ ۱۲۳ ٣٫١٤ שָׁלוֹם עברית \u202bעברית\u202c ܣܘܪܝܝܐ ދިވެހި
中文 漢字かな交じり文 カタカナ ｶﾅ がぎぐ か\u3099 한국어 \u1112\u1161\u11ab 한\u11ab
𠀀𠮷 𫠠𬺰 㐀 豈 丽 丽你 ＡＢＣ１２３ ㎏ ㍿ ①②③ ⅷ Ⅷ ½ x² H₂O ٪
3.14 1,000,000 12345678 007 0x1F 1e-9 ४५६ 𝟙𝟚 𝒳 𝕱𝖗 ℌ ™ © ® € £ ¥ ₿ ° § ¶ † • … — – ‐ ‑ ―
“q” ‘q’ «q» „q“ ‹q› ¿ ¡ ⸮ 、。「」
😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☃ ✈︎ 1️⃣ 🫠
def f(x): return x[::-1] # no != yes; a->b <=> c && d || e ~f ^g `h` $i @j %k {"l": [1,
2]} <m/> \\n \\u0041
https://example.org/a?b=c&d=%20#e user@example.org C:\\dir\\file.txt ::1 --flag=value
__init__ camelCase snake_case
## ##ing ▁ ▁the Ġ Ċ >> << <0x0A> &amp; ⁇
""".split()
SPACES = (
    " \t\n\r\x0b\x0c\x85\xa0\u1680\u2000\u2002\u2003\u2007\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
CONTROLS = (
    "\0\x01\x07\x08\x1b\x1c\x1f\x7f\x80\x9f\xad\u200b\u200c\u200d\u200e\u200f\u202e\u2060\u2066\ufeff"
    "\ufffd\ue000\U000f0000\u180e\u034f\ufe0f\u0600\u061c\U000e0041\u0378\ufdd0"
)
LETTERS = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F),
    (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x2BFF),
    (0x3000, 0x30FF), (0x4E00, 0x4EFF), (0xAC00, 0xACFF), (0xFE00, 0xFFEF), (0x1D400, 0x1D4FF),
    (0x1F300, 0x1F5FF), (0x20000, 0x200FF),
]  # fmt: skip
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\x80\x80"]
LONG = [
    "a",
    "Q",
    "7",
    "ж",
    "ß",
    "ก",
    "あ",
    "é",
    "e\u0301",
    "😀",
    "-",
    " ",
    "a.",
    "中",
    "я—",
    "я\xa0",
]


def tricky_lines(count, seed=0):
    """Return `count` lines; the first of them are short and of one kind each."""
    draw = random.Random(seed)
    lines = [
        b"",
        *(word.encode() for word in WORDS),
        *(f"a{c}b".encode() for c in SPACES + CONTROLS),
    ]
    lines += [f"{c}{c}a{c} b {c}".encode() for c in SPACES] + BROKEN
    lines += [(c * n).encode() for c in LONG for n in (50, 99, 100, 101, 102, 134, 201)]
    while len(lines) < count:
        lines.append(b"".join(_fragment(draw) for _ in range(draw.randint(1, 12))))
    return lines[:count]


def _fragment(draw):
    kind = draw.random()
    if kind < 0.5:
        return draw.choice(WORDS).encode() + b" " * draw.choice((0, 1, 1, 1, 2))
    if kind < 0.65:
        return "".join(draw.choices(SPACES, k=draw.randint(1, 4))).encode()
    if kind < 0.72:
        return draw.choice(CONTROLS).encode()
    if kind < 0.75:
        return draw.choice(BROKEN)
    low, high = draw.choice(LETTERS)
    return "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 6))).encode()
