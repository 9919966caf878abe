"""What a class declares is checked when it is registered; slips are warnings, and nothing of it imports torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs
import pytest

from wsl_toolkit import Dataset, Estimator, Generator, Kind, Setting, param
from wsl_toolkit.errors import PluginError
from wsl_toolkit.plugins.class_checks import one_edit_apart, suspicions
from wsl_toolkit.plugins.registry import Owner, Registry


@attrs.frozen(kw_only=True)
class Method(Estimator):
    """A method."""

    name: ClassVar[str] = "method"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC

    def loss(self, logits: Any, candidates: Any, state: Any) -> Any:
        return logits.sum(-1)


@attrs.frozen(kw_only=True)
class Process(Generator):
    """A process."""

    name: ClassVar[str] = "process"
    setting: ClassVar[Setting] = Setting.ANY

    def draw(self, x: Any, y: Any, num_classes: int, rng: Any) -> Any:
        raise AssertionError


class Reader(Dataset):
    """A reader."""

    name = "reader"

    def load(self, data_dir: Path) -> Any:
        raise AssertionError


def variant(base: type, **attributes: Any) -> Any:
    return type("Variant", (base,), {"__doc__": "A variant.", **attributes})


def register(cls: Any) -> None:
    Registry().add_all([(cls.role, cls)], Owner("wsl-foreign", "1.2", "foreign"))


@pytest.mark.parametrize(
    ("base", "attributes", "words"),
    [
        (Method, {"update_when": "befor"}, "`update_when` must be one of 'never', 'before', 'after', not 'befor'. Did"),
        (Method, {"update_when": None}, "`update_when` must be one of"),
        (Method, {"assumption": "PPL"}, "`assumption` must be one of Setting.CL, "),
        (Method, {"kind": "unbiased"}, "`kind` must be one of Kind.UNBIASED, "),
        (Method, {"kind": Setting.PPL}, "`kind` must be one of Kind.UNBIASED"),
        (Method, {"needs": "features"}, "`needs` must be a frozenset of names"),
        (Method, {"needs": ("features",)}, "`needs` must be a frozenset of names"),
        (Method, {"needs": frozenset({1})}, "`needs` must be a frozenset of names"),
        (Method, {"on_candidates": "r"}, "`on_candidates` must be a frozenset of names"),
        (Method, {"stackable": "no"}, "`stackable` must be True or False, not 'no'"),
        (Method, {"trains": 0}, "`trains` must be True or False, not 0"),
        (Method, {"citation": None}, "`citation` must be text"),
        (Process, {"setting": Kind.UNBIASED}, "`setting` must be one of Setting.CL"),
        (Process, {"setting": "MCL"}, "`setting` must be one of Setting.CL"),
        (Process, {"min_classes": 2.5}, "`min_classes` must be a whole number"),
        (Reader, {"suffixes": ".mat"}, "`suffixes` must be a tuple of names"),
    ],
)
def test_a_class_attribute_that_means_nothing_is_refused_with_its_place(
    base: type, attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(PluginError) as caught:
        register(variant(base, **attributes))
    assert words in str(caught.value)


def test_the_place_of_a_class_is_said() -> None:
    @attrs.frozen(kw_only=True)
    class Late(Method):
        """A method that wants its update late."""

        update_when: ClassVar[Any] = "late"

    with pytest.raises(PluginError, match=r"estimator 'method': .* \(Late, test_class_checks\.py:\d+\)"):
        register(Late)


def test_what_speaks_for_the_class_is_no_field_of_its_objects() -> None:
    @attrs.frozen(kw_only=True)
    class Fielded(Method):
        """Without ClassVar."""

        update_when: Literal["never", "before", "after"] = "before"  # type: ignore[misc]

    with pytest.raises(PluginError, match="`update_when` is a field of each object: annotate it as ClassVar"):
        register(Fielded)


@pytest.mark.parametrize(
    ("kind", "default", "words"),
    [
        (dict, None, "has the type dict, which neither an option nor a file can give"),
        (list[int], None, "has the type list"),
        (Literal["a", "b"], "a", "which neither an option nor a file can give"),
        (float, "1.0", "the default of 'rate', '1.0', is not of its type, float"),
        (int, 0.5, "the default of 'rate', 0.5, is not of its type, int"),
        (float, None, "the default of 'rate' is None, but its type says float"),
        (float, 2.0, "the default of 'rate', 2.0, must be <= 1"),
        (bool, "yes", "is not of its type, yes/no"),
        (tuple[int, ...], (1, "b"), "is not of its type, list of int"),
        (tuple[float, ...], (0.5, 3.0), "must be <= 1"),
    ],
)
def test_a_parameter_that_nobody_could_give_is_refused(kind: Any, default: Any, words: str) -> None:
    bounds = {"le": 1.0} if kind in (float, tuple[float, ...]) else {}
    attributes = {"rate": param(default, help="a rate", **bounds), "__annotations__": {"rate": kind}}
    with pytest.raises(PluginError) as caught:
        register(attrs.frozen(kw_only=True)(variant(Method, **attributes)))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "default"),
    [(float, 1), (float | None, None), (tuple[int, ...], ()), (Path, Path("x")), (str, "a"), (bool, True), (int, 3)],
)
def test_a_sound_parameter_passes(kind: Any, default: Any) -> None:
    attributes = {"rate": param(default, help="a rate"), "__annotations__": {"rate": kind}}
    register(attrs.frozen(kw_only=True)(variant(Method, **attributes)))


@pytest.mark.parametrize(
    ("base", "slip", "meant"),
    [
        (Method, "updat", "update"),
        (Method, "after_epochs", "after_epoch"),
        (Method, "initstate", "init_state"),
        (Method, "objectvie", "objective"),
        (Method, "need", "needs"),
        (Method, "update_whem", "update_when"),
        (Process, "probabilty", "probability"),
        (Process, "prepair", ""),
        (Process, "constnat", ""),
        (Reader, "suffix", ""),
        (Method, "helper", ""),
    ],
)
def test_a_name_one_letter_away_from_one_that_is_called_is_a_warning(base: type, slip: str, meant: str) -> None:
    cls = variant(base, **{slip: lambda self: None})
    register(cls)
    said = suspicions(cls)
    assert bool(said) == bool(meant)
    if meant:
        assert f"defines {slip!r}, which nobody calls: did you mean {meant!r}?" in said[0]


def test_a_field_without_param_and_an_update_that_is_never_called_are_warnings() -> None:
    @attrs.frozen(kw_only=True)
    class Sloppy(Method):
        """A field that no option sets."""

        rate: float = 1.0
        learned: float = attrs.field(default=0.0, eq=False)

        def update(self, logits: Any, candidates: Any, state: Any) -> Any:
            return {}

    said = suspicions(Sloppy)
    assert "has the field 'rate' without param()" in said[0]
    assert "'update_when' is 'never'" in said[1].replace("`", "'")
    assert len(said) == 2
    assert all("test_class_checks.py:" in each for each in said)
    assert suspicions(variant(Method, update_when="before")) == [
        "estimator 'method' declares update_when = 'before', but does not define `update`"
    ]


def test_one_edit() -> None:
    for one, other in (("update", "updat"), ("update", "updaet"), ("update", "upbate"), ("update", "uupdate")):
        assert one_edit_apart(one, other)
        assert one_edit_apart(other, one)
    for one, other in (("update", "update"), ("update", "upda"), ("update", "udpaet"), ("ab", "cd"), ("", "ab")):
        assert not one_edit_apart(one, other)


def test_our_own_components_raise_no_suspicion_and_the_checks_import_no_torch() -> None:
    code = (
        "import sys; from wsl_toolkit.plugins.loading import load_plugins; found = load_plugins();"
        "print([r.warnings for r in found.records if r.distribution == 'wsl-toolkit'], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[(),", "()]", "False"]
