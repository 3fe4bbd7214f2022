"""Goldens of sparse feed-forward blocks, in float64 with numpy only; run as `python make_goldens.py > goldens.json`."""
import json
from math import erf

import numpy as np

rng = np.random.default_rng(20261121)
E, F, N, R = 12, 24, 64, 32  # hidden, neurons, tokens, rank of the predictor


def f32(a):
    return np.asarray(a, np.float32).astype(np.float64)


def act(kind, x):
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "relu2":
        return np.maximum(x, 0) ** 2
    if kind == "silu":
        return x / (1 + np.exp(-x))
    if kind == "gelu-erf":
        return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def listed(a):
    return [float(f"{np.float32(v):.9g}") for v in np.asarray(a).ravel()]


blocks = []
for kind, gated in [("relu", True), ("relu2", True), ("silu", True), ("gelu-tanh", True), ("gelu-erf", False), ("relu", False)]:
    x = f32(rng.normal(size=(3, E)))
    gate = f32(rng.normal(size=(F, E)) / np.sqrt(E)) if gated else None
    up = f32(rng.normal(size=(F, E)) / np.sqrt(E))
    up_bias = None if gated else f32(rng.normal(size=F) * 0.3)
    down = f32(rng.normal(size=(E, F)) * np.exp(rng.normal(size=F) * 0.5) / np.sqrt(F))
    down_bias = None if gated else f32(rng.normal(size=E) * 0.3)
    u = x @ up.T + (0 if up_bias is None else up_bias)
    h = act(kind, x @ gate.T) * u if gated else act(kind, u)
    contributions = np.abs(h) * np.linalg.norm(down, axis=0)
    # the threshold above which a share of the energy lies: largest contributions first
    energies = np.sort(contributions.ravel() ** 2)[::-1]
    count = int(np.searchsorted(np.cumsum(energies), 0.9 * energies.sum())) + 1
    active = contributions >= np.sqrt(energies[count - 1])
    bias = 0 if down_bias is None else down_bias
    blocks.append(
        {
            "activation": kind,
            "x": listed(x),
            **({"gate": listed(gate)} if gated else {"upBias": listed(up_bias), "downBias": listed(down_bias)}),
            "up": listed(up),
            "down": listed(down),
            "contributions": listed(contributions),
            "numActiveAt90": count,
            "dense": listed(h @ down.T + bias),
            "active": [[int(i) for i in np.flatnonzero(row)] for row in active],
            "sparse": listed((h * active) @ down.T + bias),
        }
    )

# Low-rank start: no matrix of rank r is nearer to x W^T in the mean square than the one from the eigenvectors of W C W^T.
E2, F2 = 40, 64
x = f32(rng.normal(size=(N, E2)) @ np.diag(0.9 ** np.arange(E2)) @ np.linalg.qr(rng.normal(size=(E2, E2)))[0])
w = f32(rng.normal(size=(F2, E2)))
c = x.T @ x / N
m = w @ c @ w.T
values, vectors = np.linalg.eigh(m)
v = vectors[:, ::-1][:, :R]
best = float(((x @ w.T - x @ (w.T @ v @ v.T)) ** 2).mean())
low_rank = {"hiddenDim": E2, "ffnDim": F2, "rank": R, "numRows": N, "x": listed(x), "weight": listed(w), "bestMeanSquare": best}

# One step of Adam on the weighted cross-entropy, gradients by hand and checked by differences.
n, e, r, f = 5, 6, 4, 7
X, P, Q, b = (f32(rng.normal(size=s)) for s in [(n, e), (r, e), (f, r), (f,)])
Y = (rng.random((n, f)) < 0.3).astype(np.float64)
W = 3.0


def loss(P, Q, b):
    a = X @ P.T @ Q.T + b
    return float((W * Y * np.logaddexp(0, -a) + (1 - Y) * np.logaddexp(0, a)).mean())


def gradient(array, of):
    g = np.zeros_like(array)
    for i in np.ndindex(array.shape):
        step = 1e-6
        plus, minus = array.copy(), array.copy()
        plus[i] += step
        minus[i] -= step
        g[i] = (of(plus) - of(minus)) / (2 * step)
    return g


def adam(array, g, rate=0.01):
    return array - rate * g / (np.sqrt(g * g) + 1e-8)  # first step: both moments are those of g


gp, gq, gb = gradient(P, lambda a: loss(a, Q, b)), gradient(Q, lambda a: loss(P, a, b)), gradient(b, lambda a: loss(P, Q, a))
step = {
    "numRows": n, "hiddenDim": e, "rank": r, "ffnDim": f, "positiveWeight": W, "learningRate": 0.01,
    "x": listed(X), "labels": [int(v) for v in Y.ravel()], "p": listed(P), "q": listed(Q), "bias": listed(b),
    "loss": loss(P, Q, b),
    "gradients": {"p": listed(gp), "q": listed(gq), "bias": listed(gb)},
    "after": {"p": listed(adam(P, gp)), "q": listed(adam(Q, gq)), "bias": listed(adam(b, gb))},
}

# Scores of a product of estimates, from codes of 8 bits: every row is one block of 32 that has a code of 127, so that encoding
# the numbers gives the codes back.
E3, F3, N3 = 32, 40, 3


def codes(rows):
    c = rng.integers(-127, 128, size=(rows, 32))
    c[np.arange(rows), rng.integers(0, 32, size=rows)] = 127
    return c


X3 = f32(rng.normal(size=(N3, E3)))
estimates = {part: {"p": codes(32), "q": codes(F3), "bias": f32(rng.normal(size=F3))} for part in ("gate", "up")}
scale = 2.0**-9
gate3, up3 = (X3 @ (g["p"] * scale).T @ (g["q"] * scale).T + g["bias"] for g in estimates.values())
product = {
    "hiddenDim": E3, "ffnDim": F3, "rank": 32, "scale": scale, "x": listed(X3),
    "estimates": {part: {name: listed(a) for name, a in g.items()} for part, g in estimates.items()},
    "scores": listed(np.abs(act("silu", gate3) * up3)),
}
print(json.dumps({"hiddenDim": E, "ffnDim": F, "blocks": blocks, "lowRank": low_rank, "step": step, "product": product}))
