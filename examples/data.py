#!/usr/bin/env python3
"""Makes data of the shapes that public data sets have, by a seed, so that the examples need no download and give the same records everywhere.

    examples/data.py fraud   [-n 4000] [--seed 7]    Time, V1 … V28, Amount, Class: card payments, one in fifty a fraud
    examples/data.py sensors [-n 3000] [--seed 7]    time, unit, cycle, s1 … s8: machines whose sensors move together; --broken: the last tenth does not
    examples/data.py digits  [-n 3000] [--seed 7]    p0 … p63 from 0 to 16, digit: 8 × 8 pictures of written digits
    examples/data.py messages [-n 3000] [--seed 7]   label, text, w0 … w63: short messages, one in seven is spam; its words counted by their hash

CSV on stdout, for `penstock source file - --format csv --topic T`. Standard library alone. Real data of the same shape go the same way."""
import argparse, csv, math, random, sys, zlib

STROKES = {0: "####/#..#/#..#/#..#/#..#/####", 1: "..#./.##./..#./..#./..#./.###", 2: "####/...#/...#/####/#.../####", 3: "####/...#/.###/...#/...#/####", 4: "#..#/#..#/####/...#/...#/...#",
           5: "####/#.../####/...#/...#/####", 6: "####/#.../####/#..#/#..#/####", 7: "####/...#/..#./..#./.#../.#..", 8: "####/#..#/####/#..#/#..#/####", 9: "####/#..#/####/...#/...#/####"}


def fraud(r, n, broken):
    """Twenty-eight components without names, as after an analysis of principal components; a fraud lies elsewhere in some of them."""
    yield ["Time", *(f"V{i}" for i in range(1, 29)), "Amount", "Class"]
    for i in range(n):
        bad = r.random() < 0.02
        v = [r.gauss(0, 2 / math.sqrt(k)) for k in range(1, 29)]
        for k, by in ((3, -4.0), (9, -3.0), (11, 3.5), (13, -4.5)) if bad else ():
            v[k] += by + r.gauss(0, 1)
        yield [i * 2, *(round(x, 6) for x in v), round(r.lognormvariate(4.5 if bad else 3.2, 1.1), 2), int(bad)]


def sensors(r, n, broken):
    """Temperatures, pressures and speeds of five machines follow their load and their wear; a broken one's no longer do."""
    yield ["time", "unit", "cycle", *(f"s{i}" for i in range(1, 9))]
    weights = [(1.0, 0.2), (0.8, -0.3), (-0.6, 0.5), (0.4, 0.9), (-0.9, 0.1), (0.3, -0.7), (0.7, 0.4), (-0.2, 0.8)]
    for i in range(n):
        unit, cycle = i % 5 + 1, i // 5 + 1
        load, wear = math.sin(cycle / 9 + unit) + r.gauss(0, 0.1), 5 * (cycle % 200) / 1000
        s = [50 + 10 * (a * load + b * wear) + r.gauss(0, 0.3) for a, b in weights]
        if broken and i >= n - n // 10:
            s[2], s[5] = s[2] + 15 + r.gauss(0, 2), s[5] - 12
        yield [f"2026-01-01T{i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}Z", f"unit-{unit}", cycle, *(round(x, 3) for x in s)]


def digits(r, n, broken):
    """Strokes of four by six dots, moved, thickened and dirtied."""
    yield [*(f"p{i}" for i in range(64)), "digit"]
    for _ in range(n):
        digit = r.randrange(10)
        dots, down, right, ink = STROKES[digit].split("/"), r.randrange(3), r.choice([1, 2, 2, 3]), r.uniform(10, 16)
        grid = [[max(0.0, r.gauss(0, 1.2)) for _ in range(8)] for _ in range(8)]
        for y, line in enumerate(dots):
            for x, dot in enumerate(line):
                if dot == "#" and r.random() > 0.03:
                    grid[y + down][x + right] += ink
                    grid[y + down][min(7, x + right + 1)] += r.uniform(0, 4)
        yield [*(min(16, round(x)) for line in grid for x in line), f"d{digit}"]


HAM = "are you home yet|call me when you get there|see you at lunch|i will be late today|thanks for the book|how was your day|the meeting is at two|can you bring milk|happy birthday|ok sounds good|where did you park|the train is full again"
SPAM = "you have won a free prize|call now to claim your cash|urgent your account is locked|free ringtone reply yes|win a holiday text stop to end|your loan is approved click here|limited offer only today|claim your reward code"
OTHER = "and please the a so now then with my your new old friend time again maybe tomorrow really".split()


def messages(r, n, broken):
    """Spam and what is none share words, so no single word tells. A sender counts words by their hash: the model sees numbers, whatever is written."""
    yield ["label", "text", *(f"w{i}" for i in range(64))]
    for _ in range(n):
        spam = r.random() < 1 / 7
        words = r.choice((SPAM if spam else HAM).split("|")).split() + r.choices(OTHER, k=r.randrange(4))
        if r.random() < 0.1:
            words += r.choice((HAM if spam else SPAM).split("|")).split()[:2]
        counts = [0] * 64
        for word in words:
            counts[zlib.crc32(word.encode()) % 64] += 1
        yield ["spam" if spam else "ham", " ".join(words), *counts]


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("shape", choices=["fraud", "sensors", "digits", "messages"])
    a.add_argument("-n", type=int, help="records")
    a.add_argument("--seed", type=int, default=7)
    a.add_argument("--broken", action="store_true", help="sensors: the last tenth of the records is of a broken machine")
    a = a.parse_args()
    rows = {"fraud": (fraud, 4000), "sensors": (sensors, 3000), "digits": (digits, 3000), "messages": (messages, 3000)}[a.shape]
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows[0](random.Random(a.seed), a.n or rows[1], a.broken))
