"""Files around a network, sound and wrong: weights, kept features, checkpoints to go on from, and configurations."""

from __future__ import annotations

import hashlib
import io
import random
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import file_mutations as wrong
import mutations
import torch
from fuzz_user_files import small_data
from fuzzing import Target, damage

from wsl_toolkit.cli.features import _list
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.networks import read_weights
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs.feature_cache import FeatureCache, tensors_digest
from wsl_toolkit.runs.features import FeatureMaker, cache_in
from wsl_toolkit.runs.runner import load_parts
from wsl_toolkit.runs.tracked_trial import trial_problem
from wsl_toolkit.system.toml_files import read_toml
from wsl_toolkit.training.build import check_training, make_trainer
from wsl_toolkit.training.checkpoints import Checkpoints, read
from wsl_toolkit.training.config import Training, from_dict
from wsl_toolkit.training.features import make_extractor
from wsl_toolkit.training.stopping import BestEpoch
from wsl_toolkit.training.train import TrainingJob, train
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

FROZEN = """
epochs = 4
subset = 6
augmentation = "none"
patience = 2
keep = "best"
monitor = "validation/covering_rate"
device = "cpu"
precision = "float32"
warmup_epochs = 1
validation = 0.2
[optimizer]
name = "adam"
amsgrad = true
[scheduler]
name = "cosine"
[backbone]
name = "mlp"
widths = [5]
frozen = true
frozen_head = "linear"
frozen_weights = "net.safetensors"
[estimator]
name = "ppl"
[transform]
name = "clsp"
[generator]
name = "flip"
q = 0.4
singletons = "extended"
"""
AUGMENTED = """
epochs = 4
subset = 0.5
augmentation = "strong"
[backbone]
name = "torchvision"
model = "squeezenet1_1"
size = 8
weights = "net.safetensors"
[estimator]
name = "pico"
"""


def targets(folder: Path) -> Iterator[Target]:
    """What a frozen network, a network that starts from weights, and a training that goes on are read from."""
    torch.set_num_threads(1)
    data = attrs.evolve(small_data(names=False), candidates=None)
    backbone = load_plugins().registry.create("backbone", "mlp", {"widths": [5], "frozen": True})
    body = _state_of(backbone, data)
    yield from _weights(folder, data, backbone, body)
    yield from _features(folder, data, backbone)
    yield from _configurations(folder, data, body)
    yield from _checkpoints(folder, data)


def _state_of(backbone: Any, data: Data) -> dict[str, torch.Tensor]:
    network = backbone.build((4,), data.num_classes)
    return dict(network.state_dict())


def _weights(folder: Path, data: Data, backbone: Any, body: dict[str, torch.Tensor]) -> Iterator[Target]:
    from safetensors.torch import save

    file = io.BytesIO()
    torch.save({"state_dict": body, "epoch": 5}, file)
    samples = {".safetensors": save(body), ".pt": file.getvalue()}

    def parse(path: Path) -> Any:
        extractor = make_extractor(backbone, data, read_weights(path))
        return extractor(data.x)

    def pt(dice: random.Random) -> bytes:
        if dice.random() < 0.3:
            return wrong.as_zip(dice, samples[".pt"], damage)
        tree: Any = {"state_dict": mutations.tensors(dice, body), "epoch": 5}
        return mutations.as_checkpoint(dice, dice.choice([tree, tree["state_dict"]]))

    for suffix, sample in samples.items():
        yield Target(
            name=f"weights {suffix}",
            suffix=suffix,
            samples=(sample,),
            parse=parse,
            mutate=pt if suffix == ".pt" else lambda dice: mutations.as_safetensors(dice, body, {"format": "pt"}),
        )


def _features(folder: Path, data: Data, backbone: Any) -> Iterator[Target]:
    """Kept features: as a run reads them, and as they are listed."""
    registry = load_plugins().registry

    def maker(home: Path) -> FeatureMaker:
        return FeatureMaker(registry=registry, data_dir=home, cache=cache_in(home), device="cpu")

    made = maker(folder).embedded(data, backbone)
    (kept,) = (folder / "features").iterdir()
    content = kept.read_bytes()

    def parse(path: Path) -> None:
        home = path.parent / "fuzz"
        place = cache_in(home).folder / kept.name
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        _listed(cache_in(home))
        found = maker(home).embedded(data, backbone)
        assert found.x.shape == made.x.shape
        assert torch.isfinite(found.x).all()
        place.unlink(missing_ok=True)

    yield Target(
        name="kept features",
        suffix=".safetensors",
        samples=(content,),
        parse=parse,
        mutate=lambda dice: _as_features(dice, kept),
    )


def _as_features(dice: random.Random, kept: Path) -> bytes:
    from safetensors import safe_open

    with safe_open(str(kept), framework="pt") as file:
        # The library gives its header in another order each time.
        meta = dict(sorted(file.metadata().items()))
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    return mutations.as_safetensors(
        dice, tensors, meta, lambda header, values: {**header, "sha256": tensors_digest(values)}
    )


def _listed(cache: FeatureCache) -> None:
    """List what is kept as `wsl features --list` does, for people and for programs."""
    import contextlib

    with contextlib.redirect_stdout(io.StringIO()):
        _list(cache, as_json=True)
        _list(cache, as_json=False)


def _configurations(folder: Path, data: Data, body: dict[str, torch.Tensor]) -> Iterator[Target]:
    """Configurations with all that decides a run, read as far as `wsl run` does before it trains."""
    from safetensors.torch import save

    registry = load_plugins().registry
    (folder / "net.safetensors").write_bytes(save(body))

    def parse(path: Path) -> Any:
        config = from_dict(read_toml(path), str(path)).resolved(registry)
        check_training(config.training)
        cache = FeatureCache(folder / "none", reads=False, writes=False)
        parts = load_parts(config, registry, folder, data, cache=cache)
        parts.backbone.check_start()
        return trial_problem(config, parts, config.training.seed)

    for name, text in (("config of a frozen network", FROZEN), ("config with weights and augmentation", AUGMENTED)):
        yield Target(
            name=name,
            suffix=".toml",
            samples=(text.replace('"net.', f'"{folder}/net.').encode(),),
            parse=parse,
            mutate=lambda dice, text=text: mutations.as_toml(
                dice, tomllib.loads(text.replace('"net.', f'"{folder}/net.'))
            ),
        )


def _checkpoints(folder: Path, data: Data) -> Iterator[Target]:
    """A checkpoint to go on from, whose content is wrong under its true checksum."""
    registry = load_plugins().registry
    parts = {
        "estimator": registry.create("estimator", "ppl", {}),
        "backbone": registry.create("backbone", "linear", {}),
    }
    problem = make_problem(data, registry.create("generator", "flip", {}), seed=0, validation=0.3, test=0.3)
    training = Training(epochs=2, patience=9, keep="best", scheduler="cosine", device="cpu")

    def saving(place: Path) -> TrialCheckpoints:
        return TrialCheckpoints(Checkpoints(place, note=lambda text: None), {"data": "0"})

    job = TrainingJob(
        problem=problem, training=training, seed=0, checkpoints=lambda _: saving(folder / "to go on"), **parts
    )
    train([job])
    (path,) = (folder / "to go on").glob("*.pt")
    state = read(path)

    def parse(path: Path) -> None:
        place = path.parent / "fuzz" / "checkpoints"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(place / f"epoch-00000002-step-00000000.{digest}.pt")
        found = saving(place)
        with torch.random.fork_rng(devices=[]), found.same_threads():
            trainer = make_trainer(problem, parts["estimator"], parts["backbone"], training, 0)
            past = found.restore(trainer, BestEpoch.of(training))
            found.compare_execution(trainer)
            assert found.place is None or past.records == found.past.records
        if found.place is not None:
            found.restore_model(trainer.model)

    yield Target(
        name="checkpoint to go on from",
        suffix=".pt",
        samples=(path.read_bytes(),),
        parse=parse,
        mutate=lambda dice: mutations.as_checkpoint(dice, state),
    )
