"""Learning on a known distribution: consistency, and the price of learned confidences."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import torch
from click.testing import CliRunner

from wsl_toolkit.cli import main
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.theory import monte_carlo

REGISTRY = load_plugins().registry
TRUTH = monte_carlo.Truth.made(4)


def estimators(*names: str):
    return [REGISTRY.create("estimator", name, {}) for name in names]


@pytest.fixture(scope="module")
def result() -> monte_carlo.Consistency:
    methods = estimators("ppl", "cc", "mcl-log", "supervised", "average")
    return monte_carlo.consistency(TRUTH, methods, REGISTRY.create("generator", "mcl", {}), sizes=(100, 1600))


@pytest.mark.parametrize("name", ["ppl", "cc", "mcl-log", "supervised"])
def test_the_excess_risk_falls_at_least_as_fast_as_the_bound(result, name):
    assert result.slope(name) < -0.5
    assert bool((result.excess[name] > 0).all())


@pytest.mark.parametrize("name", ["ppl", "cc", "mcl-log", "supervised"])
def test_no_excess_risk_is_above_the_bound(result, name):
    assert bool((result.excess[name].amax(-1) < torch.tensor(result.bound)).all())


def test_average_never_arrives(result):
    """A biased estimate stays wrong however much data there is."""
    assert result.excess["average"].mean(-1)[-1] > 10 * result.excess["ppl"].mean(-1)[-1]
    assert result.slope("average") > -0.1


def test_learned_confidences_are_biased_on_the_way_and_nearly_unbiased_at_the_end():
    found = monte_carlo.learned_bias(TRUTH, estimators("ppl"), REGISTRY.create("generator", "mcl", {}))
    learned = found.learned["ppl"].mean(-1)
    assert float(learned.abs().max()) > 0.05
    assert float(learned[-1].abs()) < 0.02
    assert float(found.oracle["ppl"].abs().max()) < 1e-12


def test_the_truth_is_in_the_class_and_has_no_excess_risk():
    x = TRUTH.inputs(500, stream(0, "split"))
    assert torch.allclose(x.norm(dim=-1), torch.full((500,), monte_carlo.RADIUS))
    assert torch.allclose(TRUTH.weight.norm(dim=-1), torch.full((4,), monte_carlo.NORM, dtype=torch.float64))
    assert monte_carlo._excess(TRUTH.weight.unsqueeze(0), x, TRUTH.posterior(x)).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ["ppl", "proden", "cl-nn"])
def test_a_stack_learns_what_each_model_learns_alone(name):
    (estimator,) = estimators(name)
    sample = monte_carlo.draw_sample(TRUTH, REGISTRY.create("generator", "cl", {}), 50, stream(1, "labels"))
    *_, together = monte_carlo.train(estimator, sample, steps=20)
    for s in range(2):
        alone = attrs.evolve(
            sample, x=sample.x[s : s + 1], y=sample.y[s : s + 1], candidates=sample.candidates[s : s + 1]
        )
        *_, weight = monte_carlo.train(estimator, alone, steps=20)
        assert torch.allclose(weight[0], together[s], atol=1e-4)

    class OneByOne(type(estimator)):
        stackable = False

    *_, apart = monte_carlo.train(OneByOne(), sample, steps=20)
    assert torch.allclose(apart, together, atol=1e-4)


def test_the_same_seed_draws_the_same_sample():
    generator = REGISTRY.create("generator", "proper-instance", {})
    first, again = (monte_carlo.draw_sample(TRUTH, generator, 40, stream(3, "labels")) for _ in range(2))
    assert torch.equal(first.candidates, again.candidates)
    assert torch.equal(first.x, again.x)


class TestCommand:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(monte_carlo, "SIZES", (50, 200))
        monkeypatch.setattr(monte_carlo, "BIAS_EXAMPLES", 100)

    def test_by_default_it_takes_those_that_promise_something_in_all_of_ppl(self, tmp_path: Path):
        path = tmp_path / "figure.png"
        result = CliRunner().invoke(main, ["verify", "--monte-carlo", "--json", "--figure", str(path)])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert set(found["consistency"]["excess_risk"]) >= {"ppl", "cc", "proden", "rc", "supervised"}
        assert "mcl" not in found["consistency"]["excess_risk"]
        assert found["bias"]["steps"][0] == 0
        assert path.stat().st_size > 10_000

    def test_named_methods_and_generator_appear_in_the_table(self):
        result = CliRunner().invoke(
            main,
            ["verify", "--monte-carlo", "--estimator", "cc", "--generator", "mcl-skewed", "--generator-alpha", "0.5"],
        )
        assert result.exit_code == 0, result.output
        assert "mcl-skewed" in result.stdout
        assert "Theorem 4" in result.stdout
        assert "bias of the risk" not in result.stdout  # cc holds no confidences

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["--generator", "cl", "--generator", "mcl"], "one --generator at a time"),
            (["--estimator", "pcpl"], "cannot train"),
            (["--estimator", "r-true"], "for theory alone"),
        ],
    )
    def test_what_cannot_be_done_is_said_in_a_line(self, args, message):
        result = CliRunner().invoke(main, ["verify", "--monte-carlo", *args])
        assert result.exit_code == 2
        assert message in result.output
