"""Our losses in anybody's training loop: a risk object, and a dataset that says which example is which.

risk = wsl.risk("ppl", candidates)
for x, _, index in DataLoader(wsl.PartialLabelDataset(x, candidates), batch_size=64, shuffle=True):
    logits = model(x)
    loss = risk(logits, index)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    risk.after_step(model, x, logits, index)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from wsl_toolkit import networks
from wsl_toolkit.api.components import make_component
from wsl_toolkit.components import NEEDS, Estimator, State
from wsl_toolkit.data.inputs import as_inputs
from wsl_toolkit.data.weights import as_weights
from wsl_toolkit.errors import ConfigError, LabelError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.training.engine import all_logits, frozen_running_statistics, running_norms
from wsl_toolkit.training.risk import WEIGHT, Risk

Output = Tensor | tuple[Tensor, State]
"""What a network returns: logits, or, of an extended network in training, logits and extras."""


def risk(estimator: str | Estimator, candidates: Any, *, weights: Any = None, **parameters: Any) -> PartialLabelRisk:
    """Return an estimator's risk on some examples' candidate sets, as a module for a training loop of your own.

    `estimator` is a name or a component, `parameters` are the named one's own. `candidates` are `CandidateSets`, a 0/1
    matrix [n, K], or a list of sets of class numbers; `weights` [n] say how much each example counts.
    """
    method = make_component("estimator", estimator, parameters)
    sets = as_candidates(candidates)
    counts = None if weights is None else as_weights(weights, len(sets), "risk")
    return PartialLabelRisk(method, sets, counts)


class PartialLabelRisk(Risk):
    """An estimator with the state of n examples, which are known by their `index`, their place in the candidate sets.

    The state lies in buffers: `state_dict`, `load_state_dict` and `to` carry it, and it follows the logits' device.
    """

    epochs_done: Tensor

    def __init__(self, estimator: Estimator, candidates: CandidateSets, weights: Tensor | None = None) -> None:
        if estimator.reads_true_labels() and bool((candidates.sizes != 1).any()):
            raise ConfigError(
                f"estimator {estimator.name} learns from true labels: give CandidateSets.from_labels(y, num_classes)"
            )
        super().__init__(estimator, candidates, weights=weights)
        self._full = candidates.full_count > 0 and "unlabelled" not in estimator.needs
        self.register_buffer("epochs_done", torch.zeros((), dtype=torch.long, device=candidates.sizes.device))

    @property
    def update_when(self) -> Literal["never", "before", "after"]:
        """Which logits `update` wants: those from before the optimiser's step, those from after it, or none."""
        return self.estimator.update_when

    @property
    def needs(self) -> dict[str, str]:
        """What the method wants beside logits, and what it is; `extend` makes a network that gives it."""
        return {name: NEEDS[name].gives for name in sorted(self.estimator.needs)}

    def describe(self) -> str:
        """Return what a training loop has to do for this method."""
        name = self.estimator.name
        when = {
            "never": "keeps no state: risk.update does nothing",
            "before": "wants risk.update(logits, index) with the logits of the loss (from before the step)",
            "after": "wants risk.update(logits, index) with the logits of a second pass, after the optimiser's step",
        }[self.update_when]
        lines = [f"{name} {when}; risk.after_step(model, x, logits, index) does what is right"]
        lines += [f"{name} needs {need}: {gives}" for need, gives in self.needs.items()]
        if any(NEEDS[need].provider == "network" for need in self.estimator.needs):
            lines.append("train model = risk.extend(network), and give risk what the model returns in training")
        if "epoch" in self.estimator.needs or self.estimator.looks_back():
            wanted = (
                "model, x" if "all_logits" in self.estimator.needs else "" if self.estimator.logits_suffice else "model"
            )
            lines.append(f"call risk.end_epoch({wanted}) after each epoch")
        return "\n".join(lines)

    def extra_repr(self) -> str:
        """Return what stands between the brackets."""
        return f"{self.estimator}, {self.candidates!r}"

    def extend(self, network: nn.Module | Callable[[], nn.Module]) -> nn.Module:
        """Return the network to train: as it is, or with the views, features or momentum copy that the method needs.

        A method that trains two networks wants a function instead, each call of which returns another network.
        """
        if "two_networks" not in self.estimator.needs:
            return self.estimator.extend(network if isinstance(network, nn.Module) else network())
        if isinstance(network, nn.Module):
            raise ConfigError(
                f"estimator {self.estimator.name} trains two networks: give risk.extend a function that returns a new "
                "one at each call, not a network"
            )
        return self.estimator.extend_two(network)

    def forward(self, output: Output, index: Tensor, **given: Tensor) -> Tensor:
        """Return the loss of a batch: `output` is what the network returned, `index` [B] which examples these are.

        What the method needs beside logits comes with the output of an extended network, or is `given` by name.
        """
        logits, mask, _, state = self._batch(output, index, given)
        if self.weighted:
            losses: Tensor = self._asked(self.estimator.loss, logits, mask, state)
            return (losses * state[WEIGHT]).mean()
        loss: Tensor = self._asked(self.estimator.objective, logits, mask, state)
        return loss

    @torch.no_grad()
    def update(self, output: Output, index: Tensor, **given: Tensor) -> None:
        """Refresh the examples' state (confidences, say) from logits; see `update_when` for which."""
        if self.update_when == "never":
            return
        logits, mask, rows, state = self._batch(output, index, given)
        detached = {name: value.detach() for name, value in state.items()}
        self.write_batch(self._asked(self.estimator.update, logits.detach(), mask, detached), rows)
        self.scatter(index.to(logits.device), mask, rows)

    def after_step(self, model: nn.Module, x: Tensor, output: Output, index: Tensor) -> None:
        """Do all that the method wants after the optimiser's step: `output` is the model's, from before it."""
        if isinstance(model, networks.Extended):
            model.after_step()
        if self.update_when == "after":
            # Batch norm has seen this batch once, and must not count it twice.
            with torch.no_grad(), frozen_running_statistics(running_norms(model)):
                output = model(x)
        self.update(output, index)

    def end_epoch(self, model: nn.Module | None = None, x: Tensor | None = None) -> None:
        """Count an epoch, and let the method look back at all examples if it wants to.

        One that needs 'all_logits' is told the model that is trained and the inputs of all examples.
        """
        if self.estimator.looks_back():
            seed, index, logits = torch.randint(2**53, ()), self.visited(), None
            if "all_logits" in self.estimator.needs:
                if model is None or x is None or len(x) != len(self.candidates):
                    raise ConfigError(
                        f"estimator {self.estimator.name} looks at all examples after an epoch: call risk.end_epoch("
                        f"model, x) with the model that is trained and all {len(self.candidates)} inputs"
                    )
                logits = all_logits(model, as_inputs(x), index)
            self.after_epoch(index, int(self.epochs_done), seed, logits)
        if isinstance(model, networks.Extended):
            model.after_epoch(self.shared())
        self.epochs_done += 1

    # -------------------------------------------------------------- private

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PartialLabelRisk:
        """Let the candidate sets, which are no buffers, go where the buffers go."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.epochs_done.device != self.candidates.sizes.device:
            self.candidates = self.candidates.to(self.epochs_done.device)
        return self

    def _batch(self, output: Output, index: Tensor, given: dict[str, Tensor]) -> tuple[Tensor, Tensor, State, State]:
        """Return a batch's logits, masks, rows, and the whole state that the estimator's functions see."""
        logits, extras = networks.split_output(output)
        index = self._checked(logits, index)
        mask, rows = self.gather(index)
        if self._full and bool((full := mask.all(1)).any()):
            raise LabelError(
                f"example {int(index[full][0])} has all classes as candidates, which says nothing: leave such examples "
                "out, as PartialLabelDataset does"
            )
        # Copies, because an update writes into the shared state while a loss may still need it for its gradient.
        shared = {name: value.clone() for name, value in self.shared().items()}
        common = {"epoch": self.epochs_done.float()} if "epoch" in self.estimator.needs else {}
        return logits, mask, rows, {**shared, **common, **rows, **extras, **given}

    def _checked(self, logits: Tensor, index: Tensor) -> Tensor:
        n, classes = len(self.candidates), self.candidates.num_classes
        if logits.ndim != 2 or logits.shape[1] != classes:
            raise LabelError(f"logits must be [B, {classes}], one column a class, not {tuple(logits.shape)}")
        if index.shape != logits.shape[:1] or index.is_floating_point() or index.dtype == torch.bool:
            raise LabelError(
                f"index must be {len(logits)} whole numbers, the place of each example in the candidate sets, not "
                f"{index.dtype} {tuple(index.shape)}"
            )
        if index.device.type == "cpu" and len(index) and not 0 <= int(index.min()) <= int(index.max()) < n:
            raise LabelError(f"index must be from 0 to {n - 1}, for there are {n} candidate sets")
        if self.epochs_done.device != logits.device:
            self.to(logits.device)
        return index.to(logits.device)

    def _asked(self, function: Callable[..., Any], logits: Tensor, mask: Tensor, state: State) -> Any:
        """Call one of the estimator's functions; say what to do if it misses something."""
        keys = (NEEDS[need].key for need in self.estimator.needs)
        missing = [key for key in keys if key is not None and key not in state]
        if not missing:
            try:
                return function(logits, mask, state)
            except KeyError as error:
                if error.args[0] in state:
                    raise
                missing = [str(error.args[0])]
        raise ConfigError(
            f"estimator {self.estimator.name} needs {', '.join(sorted(missing))} beside logits: train "
            "risk.extend(network) and give risk what it returns in training, or give them by name"
        )


class PartialLabelDataset(TorchDataset[tuple[Any, Tensor, int]]):
    """Inputs with candidate sets, for a DataLoader: each item is (x, mask [K], index).

    `index` is the example's place in the candidate sets, by which a risk knows it. Examples whose set holds every class
    say nothing and are left out, so that `len` may be less than the number of inputs.
    """

    def __init__(self, x: Any, candidates: Any, transform: Callable[[Any], Any] | None = None) -> None:
        """Take inputs (a tensor, an array, or anything with `len` and whole-number keys) and their candidate sets."""
        self.candidates = as_candidates(candidates)
        self.transform = transform
        self.x = torch.as_tensor(x) if hasattr(x, "__array__") and not isinstance(x, Tensor) else x
        if len(self.x) != len(self.candidates):
            raise LabelError(f"{len(self.candidates)} candidate sets for {len(self.x)} inputs")
        self.index = self.candidates.labelled()

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, place: int) -> tuple[Any, Tensor, int]:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: list[int]) -> list[tuple[Any, Tensor, int]]:
        """Return a batch's items, as a DataLoader asks for them: all masks are looked up at once."""
        index = self.index[torch.as_tensor(places)]
        masks = self.candidates.mask(index)
        numbers = index.tolist()
        inputs = self.x[index] if isinstance(self.x, Tensor) else [self.x[number] for number in numbers]
        if self.transform is not None:
            inputs = [self.transform(each) for each in inputs]
        return list(zip(inputs, masks, numbers, strict=True))


def as_candidates(sets: Any) -> CandidateSets:
    """Return candidate sets in any accepted form as the one label type."""
    if isinstance(sets, CandidateSets):
        return sets
    if hasattr(sets, "columns") and hasattr(sets, "to_numpy"):  # a DataFrame: its columns are the classes
        return CandidateSets.from_mask(np.array(sets.to_numpy()), [str(name) for name in sets.columns])
    if hasattr(sets, "toarray") or (hasattr(sets, "__array__") and np.ndim(sets) == 2):
        return CandidateSets.from_mask(sets)
    return CandidateSets.from_sets(sets)
