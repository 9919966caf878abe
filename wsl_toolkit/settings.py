"""The map of partial-label settings (Figure 1 of Wu, Lv and Sugiyama), and what an estimator claims on it."""

from __future__ import annotations

from enum import StrEnum


class Setting(StrEnum):
    """A region of the map: what p(s | x, y) is allowed to depend on."""

    CL = "CL"
    PCPL = "PCPL"
    MCL = "MCL"
    CMM = "CMM"
    PPL = "PPL"
    GENERAL = "general"
    ANY = "any"

    @property
    def meaning(self) -> str:
        """The setting's definition in a sentence."""
        return _MEANING[self]

    def includes(self, other: Setting) -> bool:
        """Return whether every problem of `other` is also one of this setting."""
        return other in _INSIDE[self]


class Kind(StrEnum):
    """What an estimator promises under its assumption."""

    UNBIASED = "unbiased"
    CONSISTENT = "classifier-consistent"
    UPPER_BOUND = "upper bound"
    HEURISTIC = "heuristic"


_MEANING = {
    Setting.CL: "one complementary label, uniform among the wrong classes: p(s|x,y) = 1/(K-1), |s| = K-1",
    Setting.PCPL: "all admissible sets that hold y are equally likely: p(s|x,y) = 1/(2^(K-1) - 1)",
    Setting.MCL: "uniform given the size: p(s|x,y) = Q_|s| / binom(K-1, |s|-1)",
    Setting.CMM: "depends on the set alone: p(s|x,y) = C(s) for every y in s",
    Setting.PPL: "proper: depends on the instance and the set, not on which candidate is true: p(s|x,y) = C(x,s)",
    Setting.GENERAL: "any law whose sets hold the true label",
    Setting.ANY: "any law at all; the true label may be missing from its set",
}

_CHAIN = [Setting.MCL, Setting.CMM, Setting.PPL, Setting.GENERAL, Setting.ANY]
_INSIDE: dict[Setting, frozenset[Setting]] = {
    Setting.CL: frozenset({Setting.CL}),
    Setting.PCPL: frozenset({Setting.PCPL}),
}
for _position, _setting in enumerate(_CHAIN):
    _INSIDE[_setting] = frozenset({Setting.CL, Setting.PCPL, *_CHAIN[: _position + 1]})
