"""`wsl verify`: the matrix, what it says of promises that do not hold, and of components that fail."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
import torch
from click.testing import CliRunner, Result
from rich.console import Console

from wsl_toolkit import Estimator, Generator, Kind, Setting
from wsl_toolkit.cli import main
from wsl_toolkit.cli import verify as command
from wsl_toolkit.cli.verify_table import show
from wsl_toolkit.plugins.loading import Plugins, load_plugins
from wsl_toolkit.plugins.registry import Owner, Registry
from wsl_toolkit.theory.verification import TRUE_CONFIDENCE, Verdict, made_instances, verify


@attrs.frozen(kw_only=True)
class Lying(Estimator):
    """Promises more than it keeps."""

    name: ClassVar[str] = "lying"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.UNBIASED

    def loss(self, logits, candidates, state):
        return -(candidates * torch.log_softmax(logits, -1)).sum(-1)


@attrs.frozen(kw_only=True)
class Raising(Lying):
    """Fails at work."""

    name: ClassVar[str] = "raising"

    def loss(self, logits, candidates, state):
        raise ZeroDivisionError("no such luck")


@attrs.frozen(kw_only=True)
class Lawless(Generator):
    """Has no closed form."""

    name: ClassVar[str] = "lawless"
    setting: ClassVar[Setting] = Setting.GENERAL

    def draw(self, x, y, num_classes, rng):
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class BrokenGenerator(Lawless):
    """Fails when asked for its law."""

    name: ClassVar[str] = "broken-generator"

    def probability(self, sets, x, y, num_classes):
        raise KeyError("gone")


@pytest.fixture
def registry() -> Registry:
    """The built-ins and a third party's plugin."""
    found = load_plugins().registry
    mixed = Registry()
    mixed.add_all(
        [(role, found.get(role, name)) for role in ("estimator", "generator") for name in found.names(role)],
        Owner("wsl-toolkit", "0", "builtins"),
    )
    third = [("estimator", Lying), ("estimator", Raising), ("generator", Lawless), ("generator", BrokenGenerator)]
    mixed.add_all(third, Owner("wsl-third", "1.2", "third"))
    return mixed


@pytest.fixture
def wsl(registry: Registry, monkeypatch: pytest.MonkeyPatch):
    """Run the command with the third party's plugin installed."""
    monkeypatch.setattr(command, "load_plugins", lambda: Plugins((), registry))
    return lambda *args: CliRunner().invoke(main, ["verify", *args])


def cells(result: Result) -> dict[tuple[str, str], dict]:
    return {(cell["estimator"], cell["generator"]): cell for cell in json.loads(result.stdout)["cells"]}


def test_the_matrix_tells_unbiased_from_biased_and_promised_from_not(registry):
    names = ["ppl", "mcl", "cc", "mcl-log", TRUE_CONFIDENCE]
    matrix = verify(registry, [(n, {}) for n in names], [(n, {}) for n in ("mcl", "query", "cl-biased")], 3)
    verdicts = {pair: (cell.verdict, cell.promised) for pair, cell in matrix.cells.items()}
    assert verdicts["ppl", "query"] == (Verdict.UNBIASED, True)
    assert verdicts["mcl", "query"] == (Verdict.BIASED, False)
    assert verdicts["ppl", "cl-biased"] == (Verdict.BIASED, False)
    assert verdicts["cc", "mcl"] == (Verdict.CONSISTENT, True)
    assert verdicts["mcl-log", "mcl"] == (Verdict.UPPER_BOUND, True)
    assert verdicts[TRUE_CONFIDENCE, "cl-biased"] == (Verdict.UNBIASED, True)
    assert [column.name for column in matrix.columns] == ["mcl", "query", "cl-biased"]
    assert matrix.cells["cc", "mcl"].bias is None
    assert matrix.cells["ppl", "mcl"].standard_deviation > 0
    assert not matrix.broken


@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_instances_have_a_clear_leader_and_are_the_same_each_time(num_classes):
    first, again = made_instances(num_classes), made_instances(num_classes)
    top = first.posterior.topk(2).values
    assert float((top[:, 0] - top[:, 1]).min()) > 0.05
    assert torch.equal(first.posterior, again.posterior)


def test_a_broken_promise_is_a_defect(registry):
    matrix = verify(registry, [("lying", {})], [("cl", {}), ("query", {})], 3)
    assert matrix.cells["lying", "cl"].verdict is Verdict.BIASED
    assert matrix.cells["lying", "cl"].broken
    assert not matrix.cells["lying", "query"].broken  # nothing is promised there


def test_components_that_raise_spoil_their_own_cells_and_name_their_plugin(registry):
    matrix = verify(
        registry, [("raising", {}), ("ppl", {})], [("cl", {}), ("broken-generator", {}), ("lawless", {})], 3
    )
    assert matrix.cells["ppl", "cl"].verdict is Verdict.UNBIASED
    failed = matrix.cells["raising", "cl"]
    assert failed.verdict is Verdict.FAILED
    assert "wsl-third" in failed.message
    assert "no such luck" in failed.message
    assert matrix.cells["ppl", "broken-generator"].verdict is Verdict.FAILED
    assert matrix.cells["ppl", "lawless"].verdict is Verdict.NOT_APPLICABLE
    assert "no exact probability" in matrix.cells["ppl", "lawless"].message
    assert {cell.generator for cell in matrix.broken} == {"cl", "broken-generator"}


def test_too_few_classes_for_a_generator_is_no_failure(registry):
    matrix = verify(registry, [("ppl", {})], [("cl", {})], 2)
    cell = matrix.cells["ppl", "cl"]
    assert cell.verdict in (Verdict.NOT_APPLICABLE, Verdict.UNBIASED)
    assert not cell.broken


def test_the_command_shows_a_third_partys_components_by_themselves(wsl):
    result = wsl("--classes", "3", "--generator", "cl", "--generator", "lawless")
    assert result.exit_code == 1  # for the liar, and for the one that raises
    assert "lying" in result.stdout
    assert "✗" in result.stdout
    assert "failed[" in result.stdout
    assert "no such luck" in result.stdout
    assert "pairs are not as they should be" in result.stdout


def test_all_promises_of_the_builtins_hold_and_the_command_says_so(wsl):
    result = wsl("--classes", "3", "--estimator", "ppl", "--estimator", "mcl", "--generator", "mcl")
    assert result.exit_code == 0, result.output
    assert "All promises hold" in result.stdout
    assert "unbiased: the bias is 0" in result.stdout  # the legend


def test_the_table_fits_eighty_columns_and_folds_what_can_be_judged_nowhere():
    registry = load_plugins().registry
    chosen = ["ppl", "pico", "pop", "able"]
    matrix = verify(registry, [(name, {}) for name in chosen], [(name, {}) for name in registry.names("generator")], 3)
    out = Console(width=80, file=io.StringIO(), highlight=False)
    show(matrix, out)
    shown = out.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    assert "not shown, because each needs more of the network than its logits: able, pico, pop" in words
    assert "n/a[" not in words
    assert "exact sum over all 6 candidate sets (neither empty nor full), at 12 instances" in words


def test_what_a_single_generator_cannot_give_is_a_footnote_in_its_column(registry):
    matrix = verify(registry, [("ppl", {}), ("cc", {})], [("cl", {}), ("lawless", {})], 3)
    out = Console(width=80, file=io.StringIO(), highlight=False)
    show(matrix, out)
    assert out.file.getvalue().count("n/a[1]") == 2
    assert out.file.getvalue().count("no exact probability") == 1


def test_json_is_one_document_with_a_cell_for_each_pair(wsl):
    result = wsl("--classes", "3", "--estimator", "ppl", "--estimator", "r-true", "--generator", "cl", "--json")
    assert result.exit_code == 0, result.output
    found = cells(result)
    assert set(found) == {("ppl", "cl"), ("r-true", "cl")}
    assert abs(found["ppl", "cl"]["bias"]) < 1e-10
    assert found["ppl", "cl"]["verdict"] == "unbiased"


def test_a_single_component_takes_its_parameters(wsl):
    blocks = ("--generator", "partition", "--generator-partitions", "0 1|2|3", "--json")
    three = cells(wsl("--estimator", "pcpl", *blocks))["pcpl", "partition"]
    two = cells(wsl("--estimator", "pcpl", "--generator", "partition", "--json"))["pcpl", "partition"]
    assert (three["verdict"], two["verdict"]) == ("biased", "unbiased")
    mild = cells(wsl("--estimator=mcl", "--estimator-base-loss", "mae", "--generator", "query", "--json"))
    steep = cells(wsl("--estimator=mcl", "--generator", "query", "--json"))
    assert abs(mild["mcl", "query"]["bias"]) < abs(steep["mcl", "query"]["bias"])


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_figure_is_written_also_where_something_failed(wsl, tmp_path: Path, suffix: str):
    path = tmp_path / f"matrix.{suffix}"
    result = wsl("--classes", "3", "--estimator", "raising", "--generator", "cl", "--figure", str(path))
    assert result.exit_code == 1
    assert path.stat().st_size > 2000


def test_mistakes_are_one_line(wsl, tmp_path: Path):
    for args, expected in (
        (("--estimator", "pppl"), "Did you mean"),
        (("--generator", "mlc"), "Did you mean"),
        (("--figure", str(tmp_path / "matrix.jpeg")), "written as .png, .svg or .pdf"),
        (("--classes", "13"), "2<=x<=12"),
        (("--estimator", "ppl", "--estimator-base-loss", "no"), "must be one of"),
    ):
        result = wsl(*args)
        assert result.exit_code == 2, (args, result.output)
        assert expected in result.output
        assert "Traceback" not in result.output
