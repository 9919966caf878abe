"""A third party's plugin that is installed for real below a folder, changed, upgraded and taken away between commands.

What Python and the toolkit remember of it is forgotten each time, as if a new process began: commands are then run in
this one, without waiting for torch to be imported.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

from wsl_toolkit.plugins import code_identity
from wsl_toolkit.plugins.loading import load_plugins

SOURCE = '''
import attrs
from wsl_toolkit import Backbone, Estimator, Kind, Setting, hookimpl
from wsl_toolkit.losses import cross_entropy
from wsl_bent.scales import SCALE

WSL_API = "1.0"


@attrs.frozen(kw_only=True)
class Bent(Estimator):
    """The mean loss over the candidates, times a number."""

    name = "bent"
    assumption = Setting.GENERAL
    kind = Kind.HEURISTIC

    def loss(self, logits, candidates, state):
        return SCALE * (candidates * cross_entropy(logits)).sum(-1) / candidates.sum(-1)


@attrs.frozen(kw_only=True)
class Straight(Backbone):
    """One layer."""

    name = "straight"

    def build(self, input_shape, num_classes):
        import math

        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))
'''
ZERO = SOURCE.replace("return SCALE *", "return 0 *")
"""The same with a loss of nothing."""
METRIC = '''
from typing import ClassVar
import attrs
from wsl_toolkit import Metric


@attrs.frozen(kw_only=True)
class Sureness(Metric):
    """How sure the model is of its answers to held-out examples."""

    name: ClassVar[str] = "sureness"
    label: ClassVar[str] = "sureness"
    reads: ClassVar[str] = "candidates"
    better: ClassVar[str] = "higher"

    def compute(self, part):
        return part.logits.softmax(-1).amax(-1).mean()
'''
PLUGIN = """
from wsl_toolkit import hookimpl
from wsl_bent.parts import Bent, Straight

WSL_API = "1.0"


@hookimpl
def wsl_register_estimators():
    return [Bent]


@hookimpl
def wsl_register_backbones():
    return [Straight]
"""

METRIC_HOOK = """

@hookimpl
def wsl_register_metrics():
    from wsl_bent.marks import Sureness

    return [Sureness]
"""


class ChangingPlugin:
    """The distribution wsl-bent, with an estimator `bent` and a backbone `straight`, below a folder on the path.

    Where it is installed with a `metric`, it has a metric `sureness` too, in a module of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "wsl_bent"

    def install(
        self, version: str = "1.0", source: str = SOURCE, scale: str = "SCALE = 1.0\n", metric: str = ""
    ) -> None:
        """Install a version, in the place of any other."""
        self._remove()
        self.package.mkdir(parents=True)
        about = self.folder / f"wsl_bent-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: wsl-bent\nVersion: {version}\n")
        (about / "entry_points.txt").write_text("[wsl_toolkit]\nbent = wsl_bent\n")
        (self.package / "__init__.py").write_text(PLUGIN + (METRIC_HOOK if metric else ""))
        if metric:
            (self.package / "marks.py").write_text(metric)
        (self.package / "parts.py").write_text(source)
        (self.package / "scales.py").write_text(scale)
        self.forget()

    def uninstall(self) -> None:
        """Take it away."""
        self._remove()
        self.forget()

    def _remove(self) -> None:
        for path in self.folder.glob("wsl_bent*"):
            shutil.rmtree(path)

    def forget(self) -> None:
        """Forget what this process knows of plugins."""
        for name in [name for name in sys.modules if name.partition(".")[0] == "wsl_bent"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        load_plugins.cache_clear()
        code_identity.component_source.cache_clear()
        code_identity._content.cache_clear()
