"""Every exception that a user can meet; each message names the culprit and the next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WslError(Exception):
    """A user's mistake or the world's fault: shown as one line, never as a traceback."""

    exit_code = 2


class ConfigError(WslError):
    """A flag, a configuration key or a parameter value that cannot be accepted."""


class LabelError(WslError):
    """Candidate sets that break an invariant: empty, out of range, of the wrong shape."""


class DataError(WslError):
    """A data file that is missing, truncated or not what it should be."""


class UnknownComponentError(WslError):
    """No component of that name in that role."""


class PluginError(WslError):
    """A plugin that could not be loaded, or that broke its contract while running."""


class TheoryError(WslError):
    """A question that exact enumeration cannot answer for this component."""


class TrackingError(WslError):
    """The tracking store cannot be reached or refuses the record."""

    exit_code = 3


class DivergedError(WslError):
    """The training loss became NaN or infinite."""

    exit_code = 4


class InterruptedRunError(WslError):
    """The user or the system asked the run to stop; the exit code is the shell's: 128 and the signal's number."""

    def __init__(self, message: str, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def advise(self, text: str) -> InterruptedRunError:
        """Return the same with what to do about it, in the place of earlier advice."""
        return InterruptedRunError(f"{str(self).partition('; go on with')[0]}; {text}", self.exit_code)


class CheckpointError(WslError):
    """A checkpoint that is damaged, or that belongs to another run than the one to be resumed."""


class ResourceError(WslError):
    """Memory or disk that does not suffice."""

    exit_code = 5


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean …?' with the nearest known names, or an empty string."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=max(len(names), 1), cutoff=0.5)
    # Of equally near ones that of the same length is first: 'pll' is 'ppl' mistyped rather than 'vi-pll' cut short.
    near.sort(key=lambda other: (-difflib.SequenceMatcher(None, other, name).ratio(), abs(len(other) - len(name))))
    return f" Did you mean {' or '.join(repr(n) for n in near[:3])}?" if near else ""


def one_line(error: BaseException) -> str:
    """Return an exception's type and message on one line, for reports."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
