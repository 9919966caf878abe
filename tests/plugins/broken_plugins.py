"""Plugins that are broken, one for each way, and a sound one that must go on working beside them."""

from __future__ import annotations

import attrs

HEAD = """
from typing import ClassVar
import attrs
from wsl_toolkit import Estimator, Generator, Kind, Setting, hookimpl
from wsl_toolkit.losses import cross_entropy

WSL_API = "1.0"
"""


def generator(name: str, draw: str) -> str:
    """Return the source of a plugin with one generator, whose sets `draw` computes."""
    return (
        HEAD
        + f'''
@attrs.frozen(kw_only=True)
class Made(Generator):
    """A generator for tests."""

    name: ClassVar[str] = "{name}"
    setting: ClassVar[Setting] = Setting.GENERAL

    def draw(self, x, y, num_classes, rng):
        import torch
        mask = torch.nn.functional.one_hot(y, num_classes).bool()
        {draw}

@hookimpl
def wsl_register_generators():
    return [Made]
'''
    )


def estimator(name: str, loss: str) -> str:
    """Return the source of a plugin with one estimator, whose loss `loss` computes."""
    return (
        HEAD
        + f'''
@attrs.frozen(kw_only=True)
class Made(Estimator):
    """An estimator for tests."""

    name: ClassVar[str] = "{name}"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC

    def loss(self, logits, candidates, state):
        {loss}

@hookimpl
def wsl_register_estimators():
    return [Made]
'''
    )


@attrs.frozen(kw_only=True)
class Broken:
    """One plugin: its source, its entry point if that is not its module, and the fault that must be named."""

    source: str | None
    entry_point: str | None = None
    failure: str | None = None
    warning: str | None = None


SOUND_LOSS = "return (candidates * cross_entropy(logits)).sum(-1)"

BROKEN: dict[str, Broken] = {
    "wsl-sound": Broken(source=generator("sound", "return mask")),
    "wsl-import-error": Broken(
        source="from wsl_toolkit import Unheard", failure="ImportError: cannot import name 'Unheard'"
    ),
    "wsl-raises": Broken(source="1 / 0", failure="ZeroDivisionError: division by zero"),
    "wsl-syntax": Broken(source="def f(:", failure="SyntaxError: invalid syntax (wsl_syntax.py, line 1)"),
    "wsl-wrong-hook": Broken(
        source=estimator("wrong-hook", SOUND_LOSS).replace("wsl_register_estimators", "wsl_register_estimator"),
        failure="there is no hook 'wsl_register_estimator'. Did you mean 'wsl_register_estimators'",
    ),
    "wsl-unmarked": Broken(
        source=estimator("unmarked", SOUND_LOSS).replace("@hookimpl", ""),
        failure="wsl_register_estimators is not marked with @hookimpl",
    ),
    "wsl-no-hook": Broken(source='WSL_API = "1.0"', failure="implements no hook"),
    "wsl-hook-argument": Broken(
        source=estimator("hook-argument", SOUND_LOSS).replace("estimators()", "estimators(config)"),
        failure="{'config'}",
    ),
    "wsl-returns-class": Broken(
        source=estimator("returns-class", SOUND_LOSS).replace("[Made]", "Made"),
        failure="wsl_register_estimators must return a list of classes, not the class Made",
    ),
    "wsl-returns-none": Broken(
        source=estimator("returns-none", SOUND_LOSS).replace("return [Made]", "[Made]"),
        failure="wsl_register_estimators must return a list of classes, not NoneType",
    ),
    "wsl-wrong-base": Broken(
        source=estimator("wrong-base", SOUND_LOSS).replace("[Made]", "[dict]"),
        failure="dict is not a subclass of wsl_toolkit.Estimator",
    ),
    "wsl-wrong-role": Broken(
        source=estimator("wrong-role", SOUND_LOSS).replace("wsl_register_estimators", "wsl_register_generators"),
        failure="Made is not a subclass of wsl_toolkit.Generator",
    ),
    "wsl-instance": Broken(
        source=estimator("instance", SOUND_LOSS).replace("[Made]", "[Made()]"),
        failure="Made() is not a subclass of wsl_toolkit.Estimator",
    ),
    "wsl-abstract": Broken(
        source=estimator("abstract", SOUND_LOSS).replace("def loss", "def losss"),
        failure="estimator 'abstract' does not define loss",
    ),
    "wsl-undeclared": Broken(
        source=estimator("undeclared", SOUND_LOSS).replace("    assumption:", "    assume:"),
        failure="estimator 'undeclared' does not declare `assumption`",
    ),
    "wsl-bad-name": Broken(
        source=estimator("Bad Name", SOUND_LOSS), failure="needs a class attribute `name` in kebab-case, not 'Bad Name'"
    ),
    "wsl-undecorated": Broken(
        source=estimator("undecorated", SOUND_LOSS)
        .replace("@attrs.frozen(kw_only=True)\n", "")
        .replace(
            "    def loss", '    rate: float = __import__("wsl_toolkit").param(1.0, help="a rate")\n\n    def loss'
        ),
        failure="estimator 'undecorated' has parameters but is not decorated with @attrs.frozen(kw_only=True)",
    ),
    "wsl-duplicate": Broken(
        source=estimator("ppl", SOUND_LOSS), failure="estimator 'ppl' is already provided by wsl-toolkit"
    ),
    "wsl-twin": Broken(
        source=generator("sound", "return mask"),
        failure="must choose another name",
    ),
    "wsl-nowhere": Broken(source=None, failure="its entry point leads nowhere: there is no module 'wsl_nowhere'"),
    "wsl-no-attribute": Broken(
        source="", entry_point="wsl_no_attribute:plugin", failure="module 'wsl_no_attribute' has no 'plugin'"
    ),
    "wsl-newer-api": Broken(
        source='WSL_API = "1.99"\nfrom wsl_toolkit import NotYetInvented',
        failure="needs plugin API 1.99, but wsl-toolkit",
    ),
    "wsl-older-api": Broken(source='WSL_API = "0.9"', failure="was written for plugin API 0.9"),
    "wsl-computed-api": Broken(
        source='WSL_API = ".".join(["2", "0"])\n' + estimator("computed", SOUND_LOSS).replace('WSL_API = "1.0"', ""),
        failure="needs plugin API 2.0",
    ),
    "wsl-bad-api": Broken(source='WSL_API = "new"', failure="states WSL_API = 'new'; write it as MAJOR.MINOR"),
    "wsl-exits": Broken(source="import sys; sys.exit(7)", failure="called sys.exit(7) while being loaded"),
    "wsl-sleeps": Broken(
        source="import time; time.sleep(1.1)\n" + generator("sleeps", "return mask"),
        warning="s to load, which every command waits for",
    ),
    "wsl-prints": Broken(
        source='print("look at me")\n' + generator("prints", "return mask"),
        warning="printed while loading: 'look at me'",
    ),
    "wsl-no-api": Broken(
        source=generator("no-api", "return mask").replace('WSL_API = "1.0"', ""),
        warning='states no API version: write WSL_API = "1.0" in wsl_no_api',
    ),
    "wsl-typo": Broken(
        source=generator("typo", "return mask").replace(
            "    def draw", "    def probabilty(self): ...\n\n    def draw"
        ),
        warning="generator 'typo' defines 'probabilty', which nobody calls: did you mean 'probability'? (wsl_typo.py:",
    ),
    "wsl-heavy": Broken(
        source="import matplotlib\n" + generator("heavy", "return mask"), warning="imports matplotlib while loading"
    ),
    "wsl-raises-in-draw": Broken(source=generator("raises-in-draw", 'raise KeyError("no annotator")')),
    "wsl-empty-set": Broken(source=generator("empty-set", "return mask & False")),
    "wsl-raises-in-loss": Broken(source=estimator("raises-in-loss", 'raise ValueError("bad batch")')),
    "wsl-nan-loss": Broken(source=estimator("nan-loss", "return cross_entropy(logits).sum(-1) * float('nan')")),
    "wsl-wrong-loss": Broken(source=estimator("wrong-loss", "return None")),
}
"""Distribution -> plugin; each becomes a wheel of its own, and all are installed together."""
