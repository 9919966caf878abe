"""The `wsl` command: one file per subcommand, each imported only when it is called."""

from __future__ import annotations

import os

import click

from wsl_toolkit.cli.group import LazyGroup
from wsl_toolkit.version import __version__

COMMANDS = {
    "run": ("wsl_toolkit.cli.run:run", "Train a classifier from candidate sets, tracked in MLflow."),
    "ui": ("wsl_toolkit.cli.ui:ui", "Browse runs in the MLflow interface."),
    "sync": ("wsl_toolkit.cli.sync:sync", "Deliver what the tracking store did not take."),
    "study": ("wsl_toolkit.cli.study:study", "Compare methods: many runs from one description."),
    "report": ("wsl_toolkit.cli.report:report", "Tables and figures of a study."),
    "features": ("wsl_toolkit.cli.features:features", "Run a network once over the data, to train heads on."),
    "list": ("wsl_toolkit.cli.list:list_components", "List the installed components."),
    "show": ("wsl_toolkit.cli.show:show", "Show one component: parameters, setting, citation, owner."),
    "inspect": ("wsl_toolkit.cli.inspect:inspect", "Look at a label generator, and prove its setting."),
    "verify": ("wsl_toolkit.cli.verify:verify", "Show which estimator is unbiased under which generator."),
    "audit": ("wsl_toolkit.cli.audit:audit", "Audit your own candidate sets: what they are, what fits them."),
    "fit": ("wsl_toolkit.cli.fit:fit", "Train a classifier on your own candidate sets."),
    "predict": ("wsl_toolkit.cli.predict:predict", "Predict classes and probabilities with a fitted model."),
    "export": ("wsl_toolkit.cli.export:export", "Write a run's or a model's network as ONNX, a torch graph, weights."),
    "clean": ("wsl_toolkit.cli.clean:clean", "The most likely true label of each of your examples, for review."),
    "plugin": ("wsl_toolkit.cli.plugin:plugin", "List, scaffold and check plugins."),
    "doctor": ("wsl_toolkit.cli.doctor:doctor", "Say what is installed, what works, and how to fix what does not."),
    "completion": ("wsl_toolkit.cli.completion:completion", "Print the script that makes your shell complete `wsl`."),
    "plugins": ("wsl_toolkit.cli.plugin_list:list_plugins", "Short for `wsl plugin list`."),
}


@click.group(cls=LazyGroup, commands_by_name=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wsl")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Learn from partial labels: candidate sets, "not this class" answers, coarse labels.

    \b
    Start here:
      wsl run --estimator ppl --generator mcl-skewed    train on bundled data, tracked
      wsl ui                                            look at the runs
      wsl list                                          what is installed
      wsl doctor                                        whether all is well

    Exit codes: 0 done; 1 something asked about is not in order; 2 a mistake in the request or the data; 3 the tracking
    store; 4 training diverged; 5 memory or disk; 70 a defect of ours; 130 and 143 interrupted. NO_COLOR is honoured.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
