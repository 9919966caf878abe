"""What happens on a cluster's nodes: tasks are done as everywhere, on data that the node holds once.

The functions here run in the worker processes of Ray and of SLURM's jobs; they import what they need there.
"""

from __future__ import annotations

import functools
import os
import platform
import queue
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

import attrs

from wsl_toolkit.errors import DataError, PluginError
from wsl_toolkit.studies.tasks import Task

if TYPE_CHECKING:
    from wsl_toolkit.data.dataset import Data
    from wsl_toolkit.plugins.registry import Registry
    from wsl_toolkit.studies.description import Study
    from wsl_toolkit.training.config import RunConfig

Message = tuple[str, Any]
REPORT_SECONDS = 0.25
"""Epochs are counted for so long before they are reported: many small messages would cost more than they tell."""


@attrs.frozen(kw_only=True)
class Terms:
    """What a node must know beside the task itself."""

    digest: str
    """Of the data that the task's jobs were planned for."""
    source: tuple[Any, ...]
    """A reference to the data in the cluster's shared memory; empty: read it below the task's own path."""
    versions: dict[str, str]
    """What must be installed here."""
    threads: int
    share: int
    """How many tasks share a node's memory."""


def perform(task: Task, terms: Terms) -> Iterator[list[Message]]:
    """Do a task in a thread of its own; yield what it has to say, a few messages at a time."""
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_work, args=(task, terms, messages), daemon=True).start()
    last = ""
    while last not in ("ended", "apart"):
        told = [messages.get()]
        flush_at = time.monotonic() + REPORT_SECONDS
        while (last := told[-1][0]) == "advanced" and (wait := flush_at - time.monotonic()) > 0:
            try:
                told.append(messages.get(timeout=wait))
            except queue.Empty:
                break
        epochs = sum(value for kind, value in told if kind == "advanced")
        others = [message for message in told if message[0] != "advanced"]
        yield [*([("advanced", epochs)] if epochs else []), *others]


def _work(task: Task, terms: Terms, messages: queue.SimpleQueue[Message]) -> None:
    from wsl_toolkit.errors import WslError, one_line
    from wsl_toolkit.studies.executor import attempt

    try:
        worker = _worker(terms.share, tuple(sorted(terms.versions.items())))
        worker.adopt(terms)
        messages.put(attempt(worker, task, messages.put))
    except WslError as error:
        messages.put(("ended", str(error)))
    except BaseException as error:
        messages.put(("ended", f"unexpected {one_line(error)}"))


@functools.cache
def _worker(share: int, versions: tuple[tuple[str, str], ...]) -> Any:
    """Return this process's worker, made once; refuse a node on which something else is installed."""
    from wsl_toolkit.studies.worker import TaskWorker

    wrong = differences(dict(versions), installed())
    if wrong:
        raise PluginError(f"node {platform.node()}: {'; '.join(wrong)}")

    class NodeWorker(TaskWorker):
        """A worker whose data comes from the cluster, and is what the study was planned with."""

        terms: Terms

        def adopt(self, terms: Terms) -> None:
            """Take the terms of the next task."""
            import torch

            torch.set_num_threads(terms.threads)
            self.terms = terms

        def load(self, config: RunConfig, task: Task) -> Data:
            """Return the data from shared memory, or from this node's disk; checked by its digest either way."""
            from wsl_toolkit.studies.shipping import unpack

            if self.terms.source:
                import ray

                data, where = unpack(ray.get(self.terms.source[0])), "its shared memory"
            else:
                data, where = super().load(config, task), str(task.data_dir)
            if self.terms.digest and (found := data.digest()) != self.terms.digest:
                raise DataError(
                    f"node {platform.node()} has other data in {where} than the study began with (digest "
                    f"{found[:12]}, not {self.terms.digest[:12]}): copy the files there anew"
                )
            return data

    return NodeWorker(share=share)


def installed() -> dict[str, str]:
    """Return the versions of the toolkit, of torch and of every plugin here, with what is wrong with one."""
    from wsl_toolkit.plugins.loading import load_plugins

    found = {"wsl-toolkit": metadata.version("wsl-toolkit"), "torch": metadata.version("torch")}
    for record in load_plugins().records:
        found.setdefault(record.distribution, record.version)
        if record.status != "ok":
            found[record.distribution] = f"{record.version} ({record.name} {record.failure or record.status})"
    return found


def needed_versions(study: Study, registry: Registry) -> dict[str, str]:
    """Return the distributions whose components a study uses, the toolkit and torch, with the versions here."""
    here = installed()
    needed = {"wsl-toolkit": here["wsl-toolkit"], "torch": here["torch"]}
    for cell in study.cells():
        parts = {"dataset": cell.setting.dataset, "generator": cell.setting.generator}
        parts |= {"backbone": cell.setting.backbone, "estimator": cell.method.estimator}
        for role, part in parts.items():
            if part is not None:
                owner = registry.entry(role, part[0]).owner
                needed[owner.distribution] = owner.version
    return needed


def describe_node() -> dict[str, Any]:
    """Return what is installed where this is called."""
    return {"host": platform.node(), "process": os.getpid(), "versions": installed()}


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return what is missing or of another version, in words."""
    return [
        f"{name} is missing ({version} is needed)"
        if name not in found
        else f"{name} is {found[name]}, not {version} as here"
        for name, version in expected.items()
        if found.get(name) != version
    ]
