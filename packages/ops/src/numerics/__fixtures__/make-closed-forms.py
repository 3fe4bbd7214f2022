"""Writes closed-forms.json: values of functions and frequencies computed with 50 digits, apart from any Winnow code.

Run: python3 make-closed-forms.py > closed-forms.json   (needs mpmath 1.3.0)
"""

import json
from mpmath import mp, mpf, erfc, exp, sqrt, tanh, pi, log, floor, ceil

mp.dps = 50


def num(x):
    return float(x)


points = [-30, -12.5, -6, -5.3, -3, -2, -1.9999999, -1, -0.5, -1e-3, -1e-20, 0, 1e-20, 1e-3, 0.5, 1, 1.5, 1.9999999,
          2, 2.0000001, 2.5, 3, 4, 6, 8.125, 10, 15, 20, 26]
functions = {
    "erfc": [[p, num(erfc(mpf(p)))] for p in points],
    "gelu-erf": [[p, num(mpf(p) * erfc(-mpf(p) / sqrt(2)) / 2)] for p in points],
    "gelu-tanh": [[p, num(mpf(p) / 2 * (1 + tanh(sqrt(2 / pi) * (mpf(p) + mpf("0.044715") * mpf(p) ** 3))))]
                  for p in points],
    "silu": [[p, num(mpf(p) / (1 + exp(-mpf(p))))] for p in points],
    "sigmoid": [[p, num(1 / (1 + exp(-mpf(p))))] for p in points],
}


def plain(base, dim):
    return [exp(-mpf(2 * i) / dim * log(mpf(base))) for i in range(dim // 2)]


def linear(base, dim, factor):
    return [f / factor for f in plain(base, dim)]


def ntk(base, dim, factor):
    """The slowest pair is slowed down by the whole factor, pair i by factor ** (i / (last pair))."""
    last = mpf(dim) / 2 - 1
    return [f / mpf(factor) ** (i / last) for i, f in enumerate(plain(base, dim))]


def llama3(base, dim, factor, old, low, high):
    """Three bands by wavelength, written as cases (the form of the model's own code)."""
    out = []
    for f in plain(base, dim):
        wavelength = 2 * pi / f
        if wavelength < mpf(old) / high:
            out.append(f)
        elif wavelength > mpf(old) / low:
            out.append(f / factor)
        else:
            smooth = (mpf(old) / wavelength - low) / (mpf(high) - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return out


def yarn(base, dim, factor, old, fast=32, slow=1):
    """Section 3.2 of arXiv:2309.00071, the ramp between whole pair indices as in its published code."""
    def pair_of(turns):
        return dim * log(mpf(old) / (turns * 2 * pi)) / (2 * log(mpf(base)))
    low = max(int(floor(pair_of(fast))), 0)
    high = min(int(ceil(pair_of(slow))), dim - 1)
    out = []
    for i, f in enumerate(plain(base, dim)):
        ramp = min(max((mpf(i) - low) / (high - low), 0), 1)
        out.append(f * (1 - ramp) + f / factor * ramp)
    return out


def entry(options, speeds, amplitude=1):
    return {"options": options, "frequencies": [num(s) for s in speeds], "amplitude": num(amplitude)}


rope = [
    entry({"base": 10000, "rotaryDim": 8}, plain(10000, 8)),
    entry({"base": 500000, "rotaryDim": 64}, plain(500000, 64)),
    entry({"base": 10000, "rotaryDim": 2}, plain(10000, 2)),
    entry({"base": 10000, "rotaryDim": 32, "scaling": {"type": "linear", "factor": 4}}, linear(10000, 32, 4)),
    entry({"base": 10000, "rotaryDim": 64, "scaling": {"type": "ntk", "factor": 8}}, ntk(10000, 64, 8)),
    entry({"base": 500000, "rotaryDim": 128, "scaling": {"type": "llama3", "factor": 8, "originalContextLength": 8192,
                                                         "lowFreqFactor": 1, "highFreqFactor": 4}},
          llama3(500000, 128, 8, 8192, 1, 4)),
    entry({"base": 500000, "rotaryDim": 64, "scaling": {"type": "llama3", "factor": 32, "originalContextLength": 8192,
                                                        "lowFreqFactor": 1, "highFreqFactor": 4}},
          llama3(500000, 64, 32, 8192, 1, 4)),
    entry({"base": 10000, "rotaryDim": 128, "scaling": {"type": "yarn", "factor": 16, "originalContextLength": 4096}},
          yarn(10000, 128, 16, 4096), mpf("0.1") * log(mpf(16)) + 1),
    entry({"base": 1000000, "rotaryDim": 64, "scaling": {"type": "yarn", "factor": 4, "originalContextLength": 32768,
                                                         "betaFast": 24, "betaSlow": 2, "attentionFactor": 1.25}},
          yarn(1000000, 64, 4, 32768, 24, 2), 1.25),
]
print(json.dumps({"functions": functions, "rope": rope}, separators=(",", ":")))
