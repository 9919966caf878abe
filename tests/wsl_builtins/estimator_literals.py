"""Slow, literal transcriptions of every estimator's formula: Python floats, loops over sets, nothing shared with ours.

`f` are the K logits, `s` the candidate set, `q` the class probabilities that confidences come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Floats = Sequence[float]


def softmax(f: Floats) -> list[float]:
    return [math.exp(v) / sum(math.exp(w) for w in f) for v in f]


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def ell(name: str, f: Floats, j: int) -> float:
    """L(f, j) of the multi-class family."""
    p = softmax(f)
    if name == "cross-entropy":
        return -math.log(p[j])
    if name == "mae":
        return 1 - p[j]
    if name == "mse":
        return sum((p[k] - (1 if k == j else 0)) ** 2 for k in range(len(f)))
    if name == "gce":
        return (1 - p[j] ** 0.7) / 0.7
    if name == "phuber-ce":
        return -math.log(p[j]) if p[j] > 1 / 10 else -10 * p[j] + math.log(10) + 1
    raise KeyError(name)


def outside(f: Floats, s: set[int]) -> list[int]:
    return [j for j in range(len(f)) if j not in s]


def mean_over_complement(f: Floats, s: set[int], value: Callable[[int], float]) -> float:
    excluded = outside(f, s)
    return sum(value(k) for k in excluded) / len(excluded)


def confidence_weighted(f: Floats, s: set[int], q: Floats, base: str) -> float:
    return sum(q[j] / sum(q[k] for k in s) * ell(base, f, j) for j in s)


def pcpl(f: Floats, s: set[int], q: Floats, base: str) -> float:
    return 0.5 * sum(q[j] / sum(q[k] for k in s) * ell(base, f, j) for j in range(len(f)))


def cc(f: Floats, s: set[int], q: Floats, base: str) -> float:
    return -math.log(sum(softmax(f)[j] for j in s))


def lw(f: Floats, s: set[int], q: Floats, base: str) -> float:
    p, excluded = softmax(f), outside(f, s)
    total = 0.0
    for j in s:
        total += q[j] / sum(q[k] for k in s) * (sigmoid(-f[j]) if base == "sigmoid" else -math.log(p[j]))
    for j in excluded:
        total += q[j] / sum(q[k] for k in excluded) * (sigmoid(f[j]) if base == "sigmoid" else -math.log(1 - p[j]))
    return total


def mcl(f: Floats, s: set[int], q: Floats, base: str) -> float:
    num_classes, excluded = len(f), outside(f, s)
    first = sum(ell(base, f, j) for j in s)
    second = sum(ell(base, f, j) for j in excluded)
    return first - (num_classes - 1 - len(excluded)) / len(excluded) * second


def bound(phi: Callable[[float], float]) -> Callable[..., float]:
    def literal(f: Floats, s: set[int], q: Floats, base: str) -> float:
        return (len(f) - 1) / len(outside(f, s)) * phi(sum(softmax(f)[j] for j in s))

    return literal


def cl(f: Floats, s: set[int], q: Floats, base: str) -> float:
    num_classes = len(f)

    def one(excluded: int) -> float:
        others = sum(ell(base, f, k) for k in range(num_classes) if k != excluded)
        return others - (num_classes - 2) * ell(base, f, excluded)

    return mean_over_complement(f, s, one)


def cl_forward(f: Floats, s: set[int], q: Floats, base: str) -> float:
    """`base` names the matrix: uniform, or skewed with ratio 1/2."""
    num_classes, p = len(f), softmax(f)

    def chance(y: int, excluded: int) -> float:
        if y == excluded:
            return 0.0
        if base == "uniform":
            return 1 / (num_classes - 1)
        weight = [0.5 ** ((j - y) % num_classes) if j != y else 0.0 for j in range(num_classes)]
        return weight[excluded] / sum(weight)

    return mean_over_complement(
        f, s, lambda excluded: -math.log(sum(chance(y, excluded) * p[y] for y in range(num_classes)))
    )


def cl_pc(f: Floats, s: set[int], q: Floats, base: str) -> float:
    num_classes = len(f)

    def one(excluded: int) -> float:
        wins = sum(sigmoid(f[excluded] - f[j]) for j in range(num_classes) if j != excluded)
        return (num_classes - 1) * wins - num_classes * (num_classes - 1) / 2 + num_classes - 1

    return mean_over_complement(f, s, one)


def scl_nl(f: Floats, s: set[int], q: Floats, base: str) -> float:
    return mean_over_complement(f, s, lambda k: -math.log(1 - softmax(f)[k]))


def scl_exp(f: Floats, s: set[int], q: Floats, base: str) -> float:
    return mean_over_complement(f, s, lambda k: math.exp(softmax(f)[k]))


def average(f: Floats, s: set[int], q: Floats, base: str) -> float:
    return sum(ell(base, f, j) for j in s) / len(s)


def supervised(f: Floats, s: set[int], q: Floats, base: str) -> float:
    (y,) = s
    return ell(base, f, y)


def class_wise_risks(batch: Sequence[Floats], sets: Sequence[set[int]], prior: Floats, base: str) -> list[float]:
    """L_j = Σ_k π̄_k E_{ȳ=k}[ℓ_j] - (K-1) π̄_j E_{ȳ=j}[ℓ_j]; an example with several ȳ speaks for each in equal parts."""
    num_classes = len(batch[0])

    def mean_given(k: int, j: int) -> float:
        weight = [1 / len(outside(f, s)) if k not in s else 0.0 for f, s in zip(batch, sets, strict=True)]
        if sum(weight) == 0:
            return 0.0
        return sum(w * ell(base, f, j) for w, f in zip(weight, batch, strict=True)) / sum(weight)

    return [
        sum(prior[k] * mean_given(k, j) for k in range(num_classes)) - (num_classes - 1) * prior[j] * mean_given(j, j)
        for j in range(num_classes)
    ]


LITERALS: dict[str, Callable[..., float]] = {
    "average": average,
    "cc": cc,
    "cl": cl,
    "cl-forward": cl_forward,
    "cl-ga": cl,
    "cl-nn": cl,
    "cl-pc": cl_pc,
    "lw": lw,
    "mcl": mcl,
    "mcl-exp": bound(lambda z: math.exp(-z)),
    "mcl-log": bound(lambda z: -math.log(z)),
    "mcl-mae": bound(lambda z: 1 - z),
    "pcpl": pcpl,
    "ppl": confidence_weighted,
    "proden": confidence_weighted,
    "rc": confidence_weighted,
    "scl-exp": scl_exp,
    "scl-nl": scl_nl,
    "supervised": supervised,
}
