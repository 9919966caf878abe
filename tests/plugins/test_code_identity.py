"""Which code made a result: what changes a component's identity, and what does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wsl_toolkit
from tests.changing_plugin import SOURCE, ChangingPlugin
from wsl_toolkit.components import ROLES
from wsl_toolkit.errors import UnknownComponentError
from wsl_toolkit.plugins import code_identity
from wsl_toolkit.plugins.code_identity import NO_NUMERICS, NUMERICS, changes, code_of, digest_of, named_in, require
from wsl_toolkit.plugins.loading import load_plugins

BENT = [("estimator", "bent")]
Code = Callable[..., dict[str, str]]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Code]:
    """Install the plugin with something changed, and return what made its estimator."""
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = ChangingPlugin(tmp_path)

    def installed(**changed: str) -> dict[str, str]:
        plugin.install(**changed)
        return code_of(load_plugins().registry, BENT)

    yield installed
    plugin.uninstall()


def test_a_component_is_known_by_distribution_version_and_source(code: Code) -> None:
    found = code()
    assert set(found) == {"estimator bent", "toolkit"}
    assert found["estimator bent"].startswith("wsl-bent 1.0 (source ")
    assert found["toolkit"].startswith(f"wsl-toolkit {wsl_toolkit.__version__}")
    assert code() == found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SCALE * (candidates", "0 * (candidates"),
        (".sum(-1) / candidates", ".sum(-1) * candidates"),
        ('name = "bent"', 'name = "bent"\n    stackable = False'),
        ("nn.Linear(math.prod(input_shape), num_classes)", "nn.Linear(math.prod(input_shape), num_classes, False)"),
    ],
)
def test_what_the_source_says_differently_is_other_code(code: Code, before: str, after: str) -> None:
    assert before in SOURCE
    assert code()["estimator bent"] != code(source=SOURCE.replace(before, after))["estimator bent"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return SCALE", "# A comment.\n        return SCALE"),
        ("The mean loss over the candidates, times a number.", "Another docstring."),
        (
            "(self, logits, candidates, state)",
            "(\n        self,\n        logits,\n        candidates,\n        state,\n    )",
        ),
        ("SCALE * (candidates", "SCALE * ((candidates)"),
        ("def loss(self, logits, candidates, state):", "def loss(self, logits, candidates, state: dict) -> object:"),
        ("WSL_API", "from typing import TYPE_CHECKING\nWSL_API"),
    ][:5],
)
def test_comments_docstrings_formatting_and_type_hints_are_not_code(code: Code, before: str, after: str) -> None:
    assert before in SOURCE
    assert code() == code(source=SOURCE.replace(before, after))


def test_the_message_of_an_error_is_not_code_but_whether_it_is_raised_is(code: Code) -> None:
    raising = SOURCE.replace("return SCALE", "if SCALE < 0:\n            raise ValueError('one')\n        return SCALE")
    assert code(source=raising) == code(source=raising.replace("'one'", "'two'"))
    assert code(source=raising) != code()


def test_a_new_version_is_other_code_though_the_source_is_the_same(code: Code) -> None:
    old, new = code(), code(version="1.1")
    assert changes(old, new) == [f"estimator bent: {old['estimator bent']} → {new['estimator bent']}"]
    assert old["estimator bent"].partition(" (")[2] == new["estimator bent"].partition(" (")[2]


def test_a_module_of_the_same_package_that_is_imported_counts(code: Code) -> None:
    assert code() != code(scale="SCALE = 2.0\n")
    assert code() == code(scale="SCALE = 1.0  # as before\n")


@pytest.mark.parametrize("line", ["from .scales import SCALE", "from . import scales", "import wsl_bent.scales"])
def test_imports_are_followed_however_they_are_written(code: Code, line: str) -> None:
    source = SOURCE.replace("from wsl_bent.scales import SCALE", f"{line}\nSCALE = 1.0")
    assert code(source=source) != code(source=source, scale="SCALE = 2.0\n")


def test_a_base_class_of_another_distribution_counts(code: Code, tmp_path: Path) -> None:
    other = tmp_path / "wsl_base_of_bent.py"
    source = SOURCE.replace("class Bent(Estimator)", "class Bent(Base)").replace(
        "from wsl_bent.scales", "from wsl_base_of_bent import Base\nfrom wsl_bent.scales"
    )
    found = []
    for number in (1, 2):
        sys.modules.pop("wsl_base_of_bent", None)
        other.write_text(f"from wsl_toolkit import Estimator\n\nclass Base(Estimator):\n    number = {number}\n")
        found.append(code(source=source))
    assert found[0] != found[1]


def test_a_file_without_readable_source_is_known_by_its_version_alone(code: Code, tmp_path: Path) -> None:
    code()
    module = sys.modules["wsl_bent.parts"]
    code_identity.component_source.cache_clear()
    module.__file__ = str(tmp_path / "parts.so")
    assert code_of(load_plugins().registry, BENT)["estimator bent"] == "wsl-bent 1.0"


TYPED = """
import attrs
from typing import ClassVar
from wsl_toolkit import Estimator, Kind, Setting, param

@attrs.frozen(kw_only=True)
class Typed(Estimator):
    "A loss in a notebook."
    name: ClassVar[str] = "typed"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    needs: ClassVar[frozenset[str]] = frozenset({"epoch"})
    weight: float = param(1.0, help="a weight")

    def loss(self, logits, candidates, state):
        "What is minimised."
        return self.weight * logits.sum(-1)
"""


def typed(source: str) -> str:
    """Return the identity of a class that is typed into an interpreter, which has no file."""
    space: dict[str, Any] = {"__name__": "notebook_without_a_file"}
    exec(source, space)
    return code_identity.component_source(space["Typed"])


def test_a_class_typed_into_a_notebook_is_known_by_what_it_computes() -> None:
    found = typed(TYPED)
    assert found
    assert (
        typed(TYPED.replace("A loss in a notebook.", "Another docstring.").replace("What is minimised.", "x")) == found
    )
    assert typed(TYPED.replace("return self", "# a comment\n        return self")) == found
    for before, after in (
        ("self.weight * logits", "self.weight - logits"),
        ("sum(-1)", "sum(-2)"),
        ("param(1.0", "param(2.0"),
        ('{"epoch"}', '{"seed"}'),
        (".sum(", ".mean("),
    ):
        assert before in TYPED
        assert typed(TYPED.replace(before, after)) != found, after


def test_the_components_of_a_configuration_are_found_in_every_role_that_there_is(code: Code) -> None:
    code()
    registry = load_plugins().registry
    config = {role: {"name": registry.names(role)[0]} for role in ROLES if registry.names(role)}
    assert set(named_in({**config, "lr": 0.1}, registry)) == {(role, table["name"]) for role, table in config.items()}
    assert named_in({"estimator": "bent", "backbone": "absent"}, registry) == (("estimator", "bent"),)


def test_what_is_missing_is_named_with_its_distribution_and_version() -> None:
    with pytest.raises(UnknownComponentError, match=r'wsl-gone 2\.1 provided .* pip install "wsl-gone==2\.1"'):
        require(load_plugins().registry, {"estimator gone": "wsl-gone 2.1 (source 0123)"}, "run 5")
    require(load_plugins().registry, {"estimator ppl": "wsl-old 1", "toolkit": "wsl-toolkit 0"}, "run 5")


def test_the_digest_of_code_that_was_not_recorded_is_empty() -> None:
    assert digest_of({}) == ""
    assert digest_of({"a": "1", "b": "2"}) == digest_of({"b": "2", "a": "1"}) != digest_of({"a": "1"})
    assert changes({}, {"toolkit": "wsl-toolkit 1"}) == [
        "all of it: code that was not recorded (release 0.1) → wsl-toolkit 1"
    ]


def test_what_is_called_numerics_exists() -> None:
    root = Path(wsl_toolkit.__file__).parent
    for name in (*NUMERICS, *NO_NUMERICS):
        assert (root / name).is_dir() or (root / f"{name}.py").is_file(), name


def test_identities_are_found_without_torch_and_once() -> None:
    """A process that asks a thousand times reads each source once, and imports nothing heavy."""
    script = """
import ast, sys
from wsl_toolkit.plugins.code_identity import code_of
from wsl_toolkit.plugins.loading import load_plugins
parsed = []
parse = ast.parse
ast.parse = lambda *given: parsed.append(1) or parse(*given)
registry = load_plugins().registry
named = [(role, registry.names(role)[0]) for role in ("dataset", "generator", "estimator", "backbone")]
first = code_of(registry, named)
count = len(parsed)
assert count > 10 and all(code_of(registry, named) == first for _ in range(1000)) and len(parsed) == count
assert not {"torch", "mlflow", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
