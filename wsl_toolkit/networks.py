"""What a network can give beside its logits, for estimators that declare they need it.

Most methods train the backbone as it is. One whose `needs` name more gets an `Extended` network: in training its
forward pass returns logits and a dictionary of extras that joins the estimator's `state`; in evaluation it is the
backbone and nothing else.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wsl_toolkit import augmentation
from wsl_toolkit.components import State
from wsl_toolkit.errors import ConfigError, DataError, PluginError, one_line
from wsl_toolkit.system.random_streams import seed_torch, stream_seed


class Extended(nn.Module):
    """A network with what `needs` names around it: more views, features, mixed examples, a momentum copy.

    Extras, each only where needed: `view_logits` and `third_logits` of more views; `features` (`view_features`,
    `third_features`), what the classifier's last layer sees, through `project` if given; `mixed_logits` of each
    example mixed with another; `momentum_logits` and `momentum_features` of a copy that follows the network slowly,
    without gradient. Override `look` for a method that looks at its views in another way.
    """

    def __init__(
        self,
        network: nn.Module,
        needs: frozenset[str],
        *,
        project: nn.Module | None = None,
        augment: Callable[[Tensor], Tensor] | None = None,
        weaken: Callable[[Tensor], Tensor] | None = None,
        decay: float = 0.999,
        mixing: float = 4.0,
        second: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.project = project if project is not None else nn.Identity()
        self.needs = needs
        self.augment = augment or jitter
        self.weaken = weaken or augmentation.weak
        self.decay = decay
        self.mixing = mixing
        self.second = second
        if "two_networks" in needs and second is None:
            raise PluginError("the estimator needs two networks: give Extended a second one, as its extend_two does")
        self.slow: nn.ModuleList | None = None
        if "momentum" in needs:
            self.slow = copy.deepcopy(nn.ModuleList([network, self.project])).requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, State]:
        """Return logits in evaluation; logits and extras in training."""
        if self.training:
            return self.look(inputs)
        logits: Tensor = self.predictor()(inputs)
        return logits

    def predictor(self) -> nn.Module:
        """Return the network that evaluation, predictions and the tracked model use; override for one of your own."""
        first = unaugmented(self.network)
        return first if self.second is None else Ensemble(first, unaugmented(self.second))

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return the logits of a batch in training, and its extras."""
        first = view = self.weaken(inputs) if "weak_view" in self.needs else inputs
        logits, extras = self.outputs(first)
        for need, prefix in (("second_view", "view_"), ("third_view", "third_")):
            if need in self.needs:
                view = self.augment(inputs)
                view_logits, view_extras = self.outputs(view, prefix)
                extras |= {f"{prefix}logits": view_logits, **view_extras}
        if "mixed" in self.needs:
            extras |= self.mixed(first)
        if self.slow is not None:
            view = self.augment(inputs) if "momentum_view" in self.needs else view
            slow_logits, slow_extras = self.slow_outputs(view)
            extras |= {"momentum_logits": slow_logits, **slow_extras}
        if self.second is not None and "two_networks" in self.needs:
            second_logits, second_extras = self._outputs(self.second, self.project, first, "second_")
            extras |= {"second_logits": second_logits, **second_extras}
        if "seed" in self.needs:
            extras["seed"] = torch.randint(2**53, (), device=inputs.device)
        return logits, extras

    def outputs(self, inputs: Tensor, prefix: str = "") -> tuple[Tensor, State]:
        """Return logits, and features by that prefix if they are needed."""
        return self._outputs(self.network, self.project, inputs, prefix)

    @torch.no_grad()
    def slow_outputs(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return the momentum copy's logits, and its features if they are needed."""
        if self.slow is None:
            raise PluginError("there is no momentum copy: the estimator does not say that it needs 'momentum'")
        return self._outputs(self.slow[0], self.slow[1], inputs, "momentum_")

    def mixed(self, inputs: Tensor) -> State:
        """Return logits of λx + (1-λ)x', x' another example of the batch; λ ~ Beta(mixing, mixing), at least 1/2."""
        partner = torch.randperm(len(inputs), device=inputs.device)
        share = torch.distributions.Beta(self.mixing, self.mixing).sample().to(inputs)
        share = torch.maximum(share, 1 - share)
        logits = self.network(share * inputs + (1 - share) * inputs[partner])
        return {"mixed_logits": logits, "mixed_partner": partner, "mixed_share": share}

    def _outputs(self, network: nn.Module, project: nn.Module, inputs: Tensor, prefix: str) -> tuple[Tensor, State]:
        if "features" not in self.needs:
            return network(inputs), {}
        logits, features = logits_and_features(network, inputs)
        return logits, {f"{prefix}features": project(features)}

    @torch.no_grad()
    def after_step(self) -> None:
        """Let the momentum copy follow; the engine calls it after each step of the optimiser."""
        if self.slow is None:
            return
        live = nn.ModuleList([self.network, self.project])
        for slow, fast in zip(self.slow.parameters(), live.parameters(), strict=True):
            slow.lerp_(fast, 1 - self.decay)

    @torch.no_grad()
    def after_epoch(self, state: State) -> None:
        """Take over what predictions are made with from the estimator's shared state; override where there is any.

        The engine calls it after each epoch, when the estimator has looked back.
        """


class Augmented(nn.Module):
    """A network that sees an augmented copy of each training batch, and in evaluation the batch itself.

    What is drawn depends on the seed and on how many batches it has seen, and on nothing else: dropout and shuffling
    are the same with and without it, and a resumed run sees the same copies.
    """

    def __init__(self, network: nn.Module, augment: Callable[[Tensor], Tensor], seed: int) -> None:
        super().__init__()
        self.network = network
        self.augment = augment
        self.seed = seed
        self.batches = 0

    def forward(self, inputs: Tensor) -> Any:
        """Return what the network makes of the batch, or, in training, of an augmented copy."""
        return self.network(self._copy(inputs) if self.training else inputs)

    @torch.no_grad()
    def _copy(self, inputs: Tensor) -> Tensor:
        self.batches += 1
        with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
            seed_torch(stream_seed(self.seed, f"batch {self.batches}"))
            return self.augment(inputs)

    def get_extra_state(self) -> int:
        """Return how many batches it has seen, for checkpoints."""
        return self.batches

    def set_extra_state(self, state: int) -> None:
        """Go on after so many batches."""
        self.batches = state


class Pixels(nn.Module):
    """What a pretrained network's authors did to images, in front of that network.

    The loop gives images that are scaled by the training data. This turns them back into pixels of 0 to 1, repeats grey
    ones three times, resizes them to a square of `size` pixels, and scales them by the authors' `mean` and `std`.
    """

    shift: Tensor
    spread: Tensor
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        channels: int,
        *,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        size: int | None = None,
        interpolation: str = "bilinear",
    ) -> None:
        super().__init__()
        if mean and channels not in (1, len(mean)):
            raise ConfigError(
                f"the network starts from weights for images of {len(mean)} channels: images of {channels} do not fit; "
                "use grey or colour images, or leave the weights out"
            )
        self.size = size
        self.interpolation = interpolation
        self.channels = len(mean) if mean else channels
        self.register_buffer("shift", torch.zeros(channels, 1, 1))
        self.register_buffer("spread", torch.ones(channels, 1, 1))
        self.register_buffer("mean", torch.tensor(mean or [0.0] * channels).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std or [1.0] * channels).view(-1, 1, 1))

    def learn(self, transform: nn.Module) -> None:
        """Take over by what the data is scaled: a shift and a spread of each channel, so that it can be undone."""
        shift, spread = getattr(transform, "shift", None), getattr(transform, "spread", None)
        if not isinstance(shift, Tensor) or not isinstance(spread, Tensor) or (shift.ndim and shift[0].numel() != 1):
            raise ConfigError(
                "a network with a size or weights of its own takes images that are scaled by channel: have the dataset "
                "normalise them 'per-channel' or not at all"
            )
        if bool((shift < 0).any()) or bool((shift > 1).any()):
            raise ConfigError(
                "a network with a size or weights of its own takes images of bytes or of numbers from 0 to 1; here the "
                f"mean of a channel is {float(shift.flatten()[0]):g}"
            )
        self.shift.copy_(shift.reshape(-1, 1, 1).expand_as(self.shift))
        self.spread.copy_(spread.reshape(-1, 1, 1).expand_as(self.spread))

    def forward(self, images: Tensor) -> Tensor:
        """Return the images as the network's authors would give them to it."""
        pixels = (images * self.spread + self.shift).expand(-1, self.channels, -1, -1)
        if self.size is not None and tuple(pixels.shape[2:]) != (self.size, self.size):
            pixels = nn.functional.interpolate(
                pixels,
                size=(self.size, self.size),
                mode=self.interpolation,
                align_corners=False,
                antialias=self.size < max(pixels.shape[2:]),  # of no use where images grow
            )
        return (pixels - self.mean) / self.std


class Ensemble(nn.Module):
    """Several networks that predict together: log of the mean of their probabilities."""

    def __init__(self, *members: nn.Module) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits whose softmax is the mean of the members' softmaxes."""
        logs = torch.stack([member(inputs).log_softmax(-1) for member in self.members])
        return logs.logsumexp(0) - math.log(len(self.members))


def feature_width(model: nn.Module, example: Tensor) -> int:
    """Return how many numbers an extended network's features of an example are, as the estimator is given them."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            extras = model.outputs(example)[1] if isinstance(model, Extended) else {}
    finally:
        model.train(was_training)
    if "features" not in extras:
        raise PluginError("its init_features wants the width of features, but it does not say that it needs 'features'")
    return int(extras["features"].shape[1])


def run(model: nn.Module, inputs: Tensor) -> tuple[Tensor, State]:
    """Return a model's logits and its extras; an ordinary network has none."""
    return split_output(model(inputs))


def split_output(output: Any) -> tuple[Tensor, State]:
    """Return the logits and the extras of what a network returned."""
    return output if isinstance(output, tuple) else (output, {})


def plain(model: nn.Module) -> nn.Module:
    """Return the network that predicts, without the machinery that trained it."""
    return unaugmented(model.predictor() if isinstance(model, Extended) else model)


def unaugmented(network: nn.Module) -> nn.Module:
    """Return the network itself, which evaluation and users see."""
    return network.network if isinstance(network, Augmented) else network


def classifier(network: nn.Module) -> nn.Linear:
    """Return a network's last linear layer, whose input is what methods call features."""
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise PluginError("the estimator needs features, but this backbone has no linear layer to take them from")
    return layers[-1]


def logits_and_features(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return a network's logits and what its last linear layer saw, [B, d]."""
    seen: list[Tensor] = []
    handle = classifier(network).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        logits = network(inputs)
    finally:
        handle.remove()
    return logits, seen[-1].flatten(1)


def jitter(inputs: Tensor, noise: float = 0.1) -> Tensor:
    """Return another view: images shifted by up to an eighth of their side, and a little noise on every number."""
    if inputs.ndim == 4:
        inputs = augmentation.shifted(inputs)
    return inputs + noise * torch.randn_like(inputs)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of weights by name: safetensors, or torch's, of which no code is run."""
    if not path.is_file():
        raise DataError(f"there is no file of weights at {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or foreign file can fail in every way
        raise DataError(f"{path} is not a file of weights, or is damaged: {one_line(error)[:200]}") from None
    for wrapped in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(wrapped), dict):
            found = found[wrapped]
    if not isinstance(found, dict) or not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise DataError(f"{path} holds no weights by name: save a network's state_dict()")
    return {str(name).removeprefix("module."): value for name, value in found.items()}


def fill(network: nn.Module, weights: Mapping[str, Tensor], where: str) -> str:
    """Give a network weights by name; return what was replaced in a sentence's end, empty if nothing was.

    A head for another number of classes stays as it was initialised. Everything else must be there and fit.
    """
    own = network.state_dict()
    missing, unknown = [name for name in own if name not in weights], [name for name in weights if name not in own]
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unknown:
        what = f"lacks {missing[0]!r}" if missing else f"has {unknown[0]!r}, which the network lacks"
        raise ConfigError(
            f"{where} is of another network: it {what} ({len(missing)} tensors are missing, {len(unknown)} unknown)"
        )
    other = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    head = [
        name
        for name in other
        if own[name].ndim and weights[name].ndim and own[name].shape[1:] == weights[name].shape[1:]
    ]
    layers = {name.rpartition(".")[0] for name in head}
    one_layer = len(layers) == 1 and any(name.rpartition(".")[2] == "weight" for name in head)
    sizes = {(len(own[name]), len(weights[name])) for name in head}
    if other and (other != head or not one_layer or len(sizes) > 1):
        wrong = next(iter([name for name in other if name not in head] or head))
        raise ConfigError(
            f"{where} is of another network: {wrong!r} has the shape {tuple(weights[wrong].shape)}, not "
            f"{tuple(own[wrong].shape)}"
        )
    # As the network will hold them: a number that is too large for it becomes infinite there.
    if broken := next((name for name, value in weights.items() if not bool(value.float().isfinite().all())), None):
        raise DataError(f"{where} is damaged: {broken!r} holds a number that is NaN or infinite; get it again")
    network.load_state_dict({name: value for name, value in weights.items() if name not in head}, strict=False)
    if not head:
        return ""
    return f"; its head of {len(weights[head[0]])} classes is replaced by a new one of {len(own[head[0]])}"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
