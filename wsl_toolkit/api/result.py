"""What a training from Python comes to: history, metrics, models, candidate sets, confidences, pictures."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wsl_toolkit.api.display import shown
from wsl_toolkit.data.dataset import Data, split
from wsl_toolkit.data.inputs import as_inputs
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.data.subset import training_subset
from wsl_toolkit.errors import ConfigError, did_you_mean
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.runs import summary, trial_figures
from wsl_toolkit.runs.curves import mean_and_band
from wsl_toolkit.system import figure_style
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.system.statistics import mean_and_error
from wsl_toolkit.training.config import RunConfig
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.formulas import candidate_confidence
from wsl_toolkit.training.jobs import TrialOutcome, history_frame
from wsl_toolkit.training.metrics import MEAN_SIZE, METRICS

if TYPE_CHECKING:
    import pandas as pd

Loaded = tuple[nn.Module, Problem, Data]
"""A trained network, the problem that it learned, and the data that the problem was cut from."""


class Trial:
    """One seed's training: its metrics, its model and what it learned from; models are loaded when asked for."""

    def __init__(self, outcome: TrialOutcome, config: RunConfig, name: str, load: Callable[[], Loaded]) -> None:
        self.seed = outcome.seed
        self.outcome = outcome
        self._config = config
        self._name = name
        self._load = load

    def __repr__(self) -> str:
        return f"Trial(seed={self.seed}, epochs={len(self.outcome.records)})"

    @cached_property
    def _loaded(self) -> Loaded:
        return self._load()

    @property
    def metrics(self) -> dict[str, float]:
        """What was measured at the epoch whose model was kept."""
        return dict(self.outcome.final)

    @property
    def history(self) -> pd.DataFrame:
        """A row an epoch: its number, every metric, its seconds."""
        return history_frame(self.outcome.records)

    @property
    def network(self) -> nn.Module:
        """The trained network, which takes scaled inputs; see `model`."""
        return self._loaded[0]

    @property
    def transform(self) -> nn.Module:
        """What turns inputs as the data has them into the network's, learned from the training part."""
        return self.problem.whole_transform

    @property
    def problem(self) -> Problem:
        """The split, scaled and labelled data that it learned from."""
        return self._loaded[1]

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, on the CPU: it takes inputs as the data has them, and gives logits."""
        network, problem, data = self._loaded
        return summary.deployable(network, problem, data)[0]

    @property
    def candidates(self) -> CandidateSets:
        """The candidate sets of the training part."""
        return self.problem.train_candidates

    @cached_property
    def examples(self) -> Tensor:
        """Which examples of the data the training part has, in the order of `candidates`."""
        training = self._config.training
        data = self._loaded[2]
        whole = split(data, training.validation, training.test, stream(self.seed, "split")).train
        return training_subset(data, whole, training.subset, self.seed)

    @cached_property
    def confidences(self) -> Tensor:
        """How probable each candidate of each training example is, given its set, [n, K]: zero off the set."""
        inputs = as_inputs(self.problem.train_x)
        device = next((parameter.device for parameter in self.network.parameters()), torch.device("cpu"))
        parts = [
            candidate_confidence(
                predict(self.network, inputs.gather(index).to(device)).float().cpu(), self.candidates.mask(index).cpu()
            )
            for index in torch.arange(len(self.candidates)).split(inputs.chunk_length())
        ]
        return torch.cat(parts)

    def figures(self) -> dict[str, Any]:
        """Return the pictures that a tracked run keeps, by name: sizes, confidence, reliability, ambiguous examples."""
        made = trial_figures.trial_figures(self.network, self.problem, self.outcome.records, self._name)
        return {name: shown(figure) for name, figure in made}


class Result:
    """What `train`, `resume` and `load_run` return: one trial, or several of different seeds.

    `model`, `network`, `transform`, `candidates`, `examples` and `confidences` are those of the first trial; those of
    the others are in `trials`.
    """

    def __init__(
        self,
        *,
        name: str,
        config: RunConfig,
        trials: Sequence[Trial],
        notes: Sequence[str] = (),
        run_id: str | None = None,
        status: str = "FINISHED",
    ) -> None:
        self.name = name
        """What it is: method, setting, data, network."""
        self.trials = tuple(trials)
        self.notes = tuple(notes)
        """What one should know before believing it."""
        self.run_id = run_id
        """The tracked run's id, or None if it was not tracked."""
        self.status = status
        """FINISHED, or, of a run that was loaded, RUNNING, FAILED or KILLED."""
        self._config = config

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration, every parameter written out; as TOML `to_toml()` gives it to `wsl run --config`."""
        return self._config.to_dict()

    def to_toml(self) -> str:
        """Return the configuration for `wsl run --config`."""
        return self._config.to_toml()

    @property
    def _first(self) -> Trial:
        if not self.trials:
            raise ConfigError(f"run {self.run_id} has not begun to train")
        return self.trials[0]

    @property
    def model(self) -> nn.Module:
        """The trained model, on the CPU: it takes inputs as the data has them, and gives logits."""
        return self._first.model

    @property
    def network(self) -> nn.Module:
        """The trained network, which takes inputs that `transform` has scaled."""
        return self._first.network

    @property
    def transform(self) -> nn.Module:
        """What turns inputs as the data has them into the network's."""
        return self._first.transform

    @property
    def candidates(self) -> CandidateSets:
        """The candidate sets of the training part."""
        return self._first.candidates

    @property
    def examples(self) -> Tensor:
        """Which examples of the data the training part has, in the order of `candidates` and `confidences`."""
        return self._first.examples

    @property
    def confidences(self) -> Tensor:
        """How probable each candidate of each training example is, given its set, [n, K]: zero off the set."""
        return self._first.confidences

    @property
    def history(self) -> pd.DataFrame:
        """A row an epoch, with the trial's `seed` before it where there are several trials."""
        import pandas as pd

        if len(self.trials) == 1:
            return self.trials[0].history
        frames = [trial.history.assign(seed=trial.seed) for trial in self.trials]
        whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"seed": [], "epoch": []})
        return whole[["seed", *(name for name in whole.columns if name != "seed")]]

    @property
    def metrics(self) -> dict[str, float]:
        """What was measured at the end, means over trials."""
        return {name: mean for name, (mean, _) in self._estimates().items()}

    @property
    def stderr(self) -> dict[str, float]:
        """The standard errors of the means, where there are several trials."""
        return {name: error for name, (_, error) in self._estimates().items() if error is not None}

    def _estimates(self) -> dict[str, tuple[float, float | None]]:
        finals = [{**trial.metrics, MEAN_SIZE: trial.outcome.mean_size} for trial in self.trials]
        shared = [key for key in finals[0] if all(key in final for final in finals)] if finals else []
        return {key: mean_and_error([final[key] for final in finals]) for key in shared}

    def plot(self) -> Any:
        """Return the learning curves as a matplotlib figure: shares on top, risks below, a band over trials."""
        records = [trial.outcome.records for trial in self.trials if trial.outcome.records]
        if not records:
            raise ConfigError(f"{self.name}: no epoch was completed, so there is no curve")
        return shown(summary.curve_figure(records, self.name))

    def figures(self) -> dict[str, Any]:
        """Return the first trial's pictures by name."""
        return self._first.figures()

    def __repr__(self) -> str:
        shown = summary.shown(self.metrics)
        numbers = ", ".join(f"{label} {self.metrics[name]:.4f}" for name, label in shown.items())
        return f"Result({self.name}: {numbers or self.status})"

    def _repr_html_(self) -> str:
        rows = []
        errors = self.stderr
        for name, label in summary.shown(self.metrics).items():
            error = f" ± {errors[name]:.4f}" if name in errors else ""
            rows.append(f"<tr><th style='text-align:left'>{html.escape(label)}</th>")
            rows.append(f"<td>{self.metrics[name]:.4f}{error}</td></tr>")
        trials = f", {len(self.trials)} trials" if len(self.trials) > 1 else ""
        run = f"<br>run <code>{html.escape(self.run_id)}</code>, {html.escape(self.status)}" if self.run_id else ""
        notes = "".join(f"<br>note: {html.escape(note)}" for note in self.notes)
        return f"<div><b>{html.escape(self.name)}</b>{trials}{run}<table>{''.join(rows)}</table>{notes}</div>"


class Comparison:
    """Several results side by side."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        self.results = dict(results)

    def table(self) -> pd.DataFrame:
        """Return a row a result: each metric's mean, and its standard error where there are several trials."""
        import pandas as pd

        rows = {}
        for label, result in self.results.items():
            errors = {f"{name}_stderr": error for name, error in result.stderr.items()}
            rows[label] = {**result.metrics, **errors}
        return pd.DataFrame.from_dict(rows, orient="index")

    def plot(self, metric: str = "test/accuracy") -> Any:
        """Return each result's curve of one metric as a matplotlib figure, with a band over trials."""
        measured = {name for result in self.results.values() for name in result.metrics}
        if metric not in measured:
            raise ConfigError(f"no result has the metric {metric!r}.{did_you_mean(metric, measured)}")
        with figure_style.figure(figsize=(6.4, 3.6)) as (canvas, axes):
            for label, result in self.results.items():
                curves = [[r.metrics[metric] for r in trial.outcome.records] for trial in result.trials]
                mean_and_band(axes, curves, figure_style.plain(label))
            known = METRICS.get(metric)
            axes.set(xlabel="epoch", ylabel=known.label if known is not None else metric)
            axes.legend(loc="best", fontsize="small")
        return shown(canvas)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.results)})"

    def _repr_html_(self) -> str:
        return str(self.table().to_html())


def compare(results: Mapping[str, Result] | Sequence[Result]) -> Comparison:
    """Put results side by side: a mapping of labels to results, or results, which are called by what they are."""
    if isinstance(results, Mapping):
        return Comparison(results)
    labels = [result.name for result in results]
    if repeated := next((label for label in labels if labels.count(label) > 1), None):
        raise ConfigError(f"two results are called {repeated!r}: give labels, as in compare({{'a': one, 'b': other}})")
    return Comparison(dict(zip(labels, results, strict=True)))
