"""Slow, literal transcriptions of the losses of methods with more machinery: lists, loops and `math`, no tensors."""

from __future__ import annotations

import math

Row = list[float]
Rows = list[Row]


def dot(u: Row, v: Row) -> float:
    return sum(a * b for a, b in zip(u, v, strict=True))


def unit(v: Row) -> Row:
    norm = math.sqrt(dot(v, v))
    return [a / norm for a in v]


def softmax(logits: Row) -> Row:
    top = max(logits)
    raised = [math.exp(x - top) for x in logits]
    return [x / sum(raised) for x in raised]


def normalised(weights: Row, members: list[bool]) -> Row:
    total = sum(w for w, inside in zip(weights, members, strict=True) if inside)
    return [w / total if inside else 0.0 for w, inside in zip(weights, members, strict=True)]


def cross_entropy(target: Row, p: Row) -> float:
    return -sum(t * math.log(q) for t, q in zip(target, p, strict=True) if t > 0)


def divergence(target: Row, p: Row) -> float:
    return sum(t * math.log(t / q) for t, q in zip(target, p, strict=True) if t > 0)


def outside_loss(p: Row, members: list[bool]) -> float:
    return -sum(math.log(1 - q) for q, inside in zip(p, members, strict=True) if not inside)


def best(scores: Row, members: list[bool]) -> int:
    return max((j for j in range(len(scores)) if members[j]), key=lambda j: scores[j])


def pull(query: Row, positives: dict[int, float], others: list[int], pool: Rows, temperature: float) -> float:
    """-Σ_k w_k log exp(q·k/τ) / Σ_{k'} exp(q·k'/τ), the positives and the others named by their place in the pool."""
    total = sum(math.exp(dot(query, pool[k]) / temperature) for k in others)
    return -sum(w * math.log(math.exp(dot(query, pool[k]) / temperature) / total) for k, w in positives.items())


def alike(places: list[int]) -> dict[int, float]:
    return {k: 1 / len(places) for k in places}


def dirichlet_divergence(alpha: Row) -> float:
    """KL(Dir(α) ‖ Dir(1)), with the digamma function by a difference of log-gammas."""
    step = 1e-5
    total = sum(alpha)

    def digamma(x: float) -> float:
        return (math.lgamma(x + step) - math.lgamma(x - step)) / (2 * step)

    constant = math.lgamma(total) - sum(math.lgamma(a) for a in alpha) - math.lgamma(len(alpha))
    return constant + sum((a - 1) * (digamma(a) - digamma(total)) for a in alpha)
