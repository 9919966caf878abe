"""Proofs, audits and cleaned labels from Python: the command line's findings, as tables and figures."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import attrs
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

import wsl_toolkit as wsl
from wsl_toolkit.cli import main
from wsl_toolkit.errors import WslError


def command(*arguments: str) -> Any:
    done = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    text = done.stdout
    return json.loads(text[min(place for place in (text.find("{"), text.find("[")) if place >= 0) :])


def test_inspect_proves_what_the_command_proves() -> None:
    found = wsl.inspect("mcl-skewed", classes=5, alpha=0.7)
    told = command("inspect", "mcl-skewed", "--classes", "5", "--alpha", "0.7")
    assert found.setting is wsl.Setting.MCL
    assert found.sizes()["probability"].sum() == pytest.approx(1)
    assert found.profile.mean_size.value == pytest.approx(told["mean_size"]["value"] if "mean_size" in told else 0)
    claims = found.claims().set_index("claim")
    assert claims["holds"].any()
    assert not claims["holds"].all()
    assert (claims["witness"][~claims["holds"]] != "").all()
    assert found.cooccurrence().shape == (5, 5)
    assert list(found.constants()["size"]) == [1, 2, 3, 4]
    assert found.figure().axes
    assert "MCL" in repr(found) or "mcl" in repr(found)
    assert "<table" in found._repr_html_()


@attrs.frozen(kw_only=True)
class AlwaysNext(wsl.Generator):
    """The true class and the next one: a generator that no plugin registers."""

    name: ClassVar[str] = "always-next"
    setting: ClassVar[wsl.Setting] = wsl.Setting.GENERAL

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        mask = torch.zeros(len(y), num_classes, dtype=torch.bool)
        mask[torch.arange(len(y)), y] = True
        mask[torch.arange(len(y)), (y + 1) % num_classes] = True
        return mask

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        return (sets == self.draw(x, y, num_classes, torch.Generator())).all(1).double()


def test_a_generator_of_one_s_own_is_placed_and_verified() -> None:
    found = wsl.inspect(AlwaysNext(), classes=4)
    assert found.profile.mean_size.value == 2
    verified = wsl.verify(["cc", "ppl"], [AlwaysNext(), "mcl"], classes=4)
    assert set(verified.verdicts().columns) == {"always-next", "mcl"}
    assert set(verified.verdicts().index) == {"cc", "ppl"}


def test_verify_finds_what_the_command_finds() -> None:
    found = wsl.verify(["ppl", "mcl"], ["mcl", "flip"], classes=4)
    told = command("verify", "--estimator", "ppl", "--estimator", "mcl", "--generator", "mcl", "--generator", "flip")
    table = found.table().set_index(["estimator", "generator"])
    assert len(table) == 4
    for cell in told["cells"]:
        mine = table.loc[(cell["estimator"], cell["generator"])]
        assert (mine["verdict"], bool(mine["promised"])) == (cell["verdict"], cell["promised"])
        assert mine["bias"] == pytest.approx(cell["bias"], nan_ok=True)
    assert found.verdicts().loc["ppl", "mcl"] == "unbiased"
    assert len(found.broken) == 0
    assert "every promise holds" in repr(found)
    assert found.figure().axes
    with pytest.raises(WslError, match="no estimator is named 'pll'"):
        wsl.verify("pll")


def birds() -> tuple[Tensor, wsl.CandidateSets, list[str]]:
    rng = torch.Generator().manual_seed(1)
    y = torch.randint(3, (150,), generator=rng)
    x = torch.randn(150, 4, generator=rng) + 3 * torch.eye(3, 4)[y]
    mask = torch.zeros(150, 3, dtype=torch.bool)
    mask[torch.arange(150), y] = True
    mask[torch.arange(150), torch.randint(3, (150,), generator=rng)] = True
    names = ["crow", "raven", "rook"]
    return x, wsl.CandidateSets.from_mask(mask, names), [names[label] for label in y.tolist()]


def test_an_audit_gives_tables_and_figures() -> None:
    x, sets, labels = birds()
    found = wsl.audit(x, sets)
    assert found.best_estimator in set(found.estimators()["estimator"])
    assert set(found.settings().columns) == {"setting", "verdict", "why"}
    assert len(found.checks()) > 0
    assert found.summary().set_index("what").loc["examples", "value"] == "150"
    assert set(found.figures()) == {"sizes", "classes", "companions"}
    assert "<html" in found.to_html()
    assert "150 sets of 3 classes" in repr(found)
    with_labels = wsl.audit(wsl.make_data(x, sets, y=labels))
    assert with_labels.found.known_labels == 150
    with pytest.raises(WslError, match="has no candidate sets"):
        wsl.audit(wsl.make_data(x, y=labels))


def test_labels_are_cleaned_out_of_fold() -> None:
    x, sets, labels = birds()
    found = wsl.clean(x, sets, y=labels, estimator="ppl", folds=3, epochs=8, lr=0.1, weight_decay=1e-3)
    table = found.table()
    assert len(table) == 150
    assert set(table["label"]) == {"crow", "raven", "rook"}
    assert found.summary["accuracy"] == pytest.approx((table["label"] == labels).mean())
    assert found.summary["accuracy"] > 0.85
    assert sorted(table["review"]) == list(range(1, 151))
    again = wsl.clean((x, sets), estimator="ppl", folds=3, epochs=8, lr=0.1, weight_decay=1e-3)
    assert torch.equal(again.found.label, found.found.label)
    assert "ppl" in repr(found)
