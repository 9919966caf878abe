"""Slow, literal transcriptions of the methods' losses: Python floats and loops, nothing shared with ours.

`f` are the K logits of an example, `s` its candidate set, `table` the matrix Q[y][ȳ] where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Floats = Sequence[float]
Matrix = Sequence[Floats]


def softmax(f: Floats) -> list[float]:
    return [math.exp(v) / sum(math.exp(w) for w in f) for v in f]


def excluded(f: Floats, s: set[int]) -> list[int]:
    return [j for j in range(len(f)) if j not in s]


def mean(f: Floats, s: set[int], value: Callable[[int], float]) -> float:
    """The mean over the complementary labels."""
    return sum(value(k) for k in excluded(f, s)) / len(excluded(f, s))


def skewed(num_classes: int, ratio: float = 0.5) -> list[list[float]]:
    """Q of the process whose d-th class after y is excluded with a probability proportional to ratio^d."""
    rows = []
    for y in range(num_classes):
        weights = [0.0 if j == y else ratio ** ((j - y) % num_classes) for j in range(num_classes)]
        rows.append([w / sum(weights) for w in weights])
    return rows


def uniform(num_classes: int) -> list[list[float]]:
    return [[0.0 if j == y else 1 / (num_classes - 1) for j in range(num_classes)] for y in range(num_classes)]


def inverse(table: Matrix) -> list[list[float]]:
    """Gauss and Jordan, with the largest pivot."""
    n = len(table)
    rows = [[*table[i], *(1.0 if j == i else 0.0 for j in range(n))] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for r in range(n):
            if r != i:
                rows[r] = [a - rows[r][i] * b for a, b in zip(rows[r], rows[i], strict=True)]
    return [row[n:] for row in rows]


def discriminative(f: Floats, s: set[int], weighted: bool) -> float:
    p = softmax(f)
    q = softmax([1 - v for v in p])
    w = [(1 - v) / sum(1 - u for u in p) for v in p]
    return mean(f, s, lambda k: -math.log(q[k]) + (-w[k] * math.log(q[k]) if weighted else 0))


def order_preserving(f: Floats, s: set[int]) -> float:
    q = softmax([-v for v in f])
    return mean(f, s, lambda k: -math.log(q[k]))


def order_preserving_weighted(f: Floats, s: set[int]) -> float:
    p, q = softmax(f), softmax([-v for v in f])
    inverses = [1 / v + 1 for v in q]
    shares = [math.exp(v - max(inverses)) for v in inverses]
    v = [share / sum(shares) for share in shares]
    return mean(f, s, lambda k: -(p[k] * v[k] + 1e-6) * math.log(q[k]))


def through_matrix(f: Floats, s: set[int], table: Matrix) -> float:
    p = softmax(f)
    return mean(f, s, lambda k: -math.log(sum(p[j] * table[j][k] for j in range(len(f)))))


def transition_risk(f: Floats, s: set[int], table: Matrix) -> float:
    p, backward = softmax(f), inverse(table)
    return mean(f, s, lambda k: sum(backward[k][j] * -math.log(p[j]) for j in range(len(f))))


def parts_of_transition_risk(batch: Sequence[Floats], sets: Sequence[set[int]], table: Matrix, by: str) -> list[float]:
    """L_j for every class j, or for every complementary label; priors are those of the batch itself."""
    k = len(table)
    backward = inverse(table)
    parts = [0.0] * k
    for y_bar in range(k):
        share = [1 / len(excluded(f, s)) if y_bar not in s else 0.0 for f, s in zip(batch, sets, strict=True)]
        if sum(share) == 0:
            continue
        prior = sum(share) / len(batch)
        for j in range(k):
            expected = sum(w * -math.log(softmax(f)[j]) for w, f in zip(share, batch, strict=True)) / sum(share)
            parts[j if by == "class" else y_bar] += prior * backward[y_bar][j] * expected
    return parts


def logistic(z: float) -> float:
    return math.log(1 + math.exp(-z))


def scarce(
    batch: Sequence[Floats], sets: Sequence[set[int]], priors: Floats, correct: Callable[[float], float]
) -> float:
    """The authors' four means, class by class."""
    total = 0.0
    for k in range(len(priors)):
        negative = [f for f, s in zip(batch, sets, strict=True) if k not in s]
        n = max(len(negative), 1)
        fall_of_negative = sum(logistic(-f[k]) for f in negative) / n
        rise_of_negative = sum(logistic(f[k]) for f in negative) / n
        rise_of_all = sum(logistic(f[k]) for f in batch) / len(batch)
        total += (1 - priors[k]) * fall_of_negative + correct(rise_of_all - (1 - priors[k]) * rise_of_negative)
    return total


def activation_target(f: Floats, s: set[int], off_candidates: float | None) -> int:
    """The class of largest activation value: among the candidates, or with a value for all the others."""
    values = {j: abs(f[j] - 1) * f[j] for j in s}
    if off_candidates is not None:
        values |= dict.fromkeys(excluded(f, s), off_candidates)
    return min(j for j in values if values[j] == max(values.values()))
