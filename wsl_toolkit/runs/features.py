"""From data and a frozen backbone to the features that the one makes of the other, and the head to train on them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import attrs

from wsl_toolkit.components import Backbone
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.embedding import Embedding, Extractor, inputs_digest
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.networks import read_weights
from wsl_toolkit.parameters import parameters_of, values_of
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.code_identity import code_of
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs.feature_cache import FOLDER, FORMAT, FeatureCache, tensors_digest
from wsl_toolkit.system.memory import explain_memory
from wsl_toolkit.training.config import FROZEN, Training
from wsl_toolkit.training.devices import choose_device
from wsl_toolkit.training.features import Tell, embed, make_extractor


@attrs.frozen(kw_only=True)
class FeatureMaker:
    """Turns data into features: from the cache if they are there, else by running the network once over it."""

    registry: Registry
    data_dir: Path
    cache: FeatureCache
    device: str = "auto"
    tell: Tell = lambda done, total: None

    def embedded(self, data: Data, backbone: Backbone) -> Data:
        """Return the data with a backbone's features in the place of its inputs."""
        with explain_memory("choose a smaller --backbone or less data"):
            return self._embedded(data, backbone)

    def _embedded(self, data: Data, backbone: Backbone) -> Data:
        weights_file = weights_of(backbone, self.data_dir)
        with attributed(self.registry, "backbone", backbone.name):
            extractor = make_extractor(backbone, data, read_weights(weights_file) if weights_file else None)
        network = describe(backbone, extractor)
        embedding = Embedding(raw=data, extractor=extractor, network=network)
        key = self.key(embedding, backbone)
        found = self.cache.get(key, len(data.x), None if data.test_x is None else len(data.test_x))
        if found is None:
            with attributed(self.registry, "backbone", backbone.name):
                found = embed(extractor, data, choose_device(self.device), self.tell)
            self.cache.put(key, *found, data=data.name, network=network)
        return embedding.data(*found)

    def key(self, embedding: Embedding, backbone: Backbone) -> str:
        """Return the hash of all that decides the features: inputs, network, weights, and the code of both."""
        code = code_of(self.registry, [("backbone", backbone.name)])
        inputs = [inputs_digest(embedding.raw), embedding.raw.num_classes]
        content = json.dumps([FORMAT, *inputs, embedding.network, code], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def freeze(data: Data, backbone: Backbone, training: Training, maker: FeatureMaker) -> tuple[Data, Backbone]:
    """Return what to train on and what to train: as they are, or features and a head where the backbone is frozen."""
    check_frozen(backbone, training)
    if not backbone.frozen:
        return data, backbone
    return maker.embedded(data, backbone), head_of(backbone, maker.registry)


def check_frozen(backbone: Backbone, training: Training) -> None:
    """Refuse what goes with frozen features alone, or does not go with them."""
    if not backbone.frozen:
        values = {name: getattr(backbone, name) for name in FROZEN}
        defaults = {name: parameters_of(Backbone)[name].default for name in FROZEN}
        if given := next((name for name in FROZEN if values[name] != defaults[name]), None):
            raise ConfigError(f"--backbone-{given.replace('_', '-')} goes with --backbone-frozen")
    elif training.augmentation != "none":
        raise ConfigError(
            f"--augmentation {training.augmentation} does not go with --backbone-frozen: features are computed once, "
            "of the examples as they are"
        )


def head_of(backbone: Backbone, registry: Registry) -> Backbone:
    """Return what is trained on a frozen backbone's features."""
    head: Backbone = registry.create("backbone", backbone.frozen_head, {})
    return head


def weights_of(backbone: Backbone, data_dir: Path) -> Path | None:
    """Return the file of a frozen backbone's weights, from here or below the data directory, if it has one."""
    path = backbone.frozen_weights
    if path is None:
        return None
    found = next((each for each in (path, data_dir / path) if each.is_file()), None)
    if found is None:
        also = "" if path.is_absolute() else f", neither here nor below the data directory {data_dir}"
        raise ConfigError(f"--backbone-frozen-weights: there is no file {path}{also}")
    return found


def describe(backbone: Backbone, extractor: Extractor) -> str:
    """Return what a frozen network is, wherever its weights came from: 'lenet, weights 0123456789abcdef…'."""
    values = {name: value for name, value in values_of(backbone).items() if name not in FROZEN}
    shown = ", ".join(f"{name}={value}" for name, value in values.items())
    name = f"{backbone.name}({shown})" if shown else backbone.name
    return f"{name}, weights {tensors_digest(extractor.body.state_dict())}"


NO_CACHE = FeatureCache(Path(FOLDER), reads=False, writes=False)
"""For workers that have no disk in common with the workspace: they compute what they need."""


def cache_in(home: Path, *, writes: bool = True) -> FeatureCache:
    """Return the cache of a workspace."""
    return FeatureCache(home / FOLDER, writes=writes)
