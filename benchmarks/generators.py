"""Drawing candidate sets: against a loop over examples, as n and K grow, and how much memory a million take.

python -m benchmarks.generators
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from typing import Any

from benchmarks.harness import measure, ratio

ALPHA = 0.7
PROOF_OF_MEMORY = """
import json, time
import torch
torch.set_num_threads(1)
from wsl_toolkit.plugins import load_plugins

def peak_kb():  # not ru_maxrss, in which the process that started this one counts as well
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0])

n, num_classes = {n}, {num_classes}
generator = load_plugins().registry.create("generator", "mcl-skewed", {{"alpha": {alpha}}})
y = torch.randint(0, num_classes, (n,), generator=torch.Generator().manual_seed(0))
before = peak_kb()
start = time.process_time()
sets = generator.sample(torch.zeros(n, 1), y, num_classes, torch.Generator().manual_seed(0))
seconds = time.process_time() - start
peak = peak_kb()
print(json.dumps({{"n": n, "classes": num_classes, "cpu_seconds": seconds, "storage": sets.storage,
                  "sets_mb": sets.nbytes / 2**20, "before_mb": before / 2**10, "peak_mb": peak / 2**10}}))
"""


def main() -> dict[str, Any]:
    """Measure all on one thread, which is what a loop in Python has, and print a table."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results: dict[str, Any] = {
        "speedup over a loop with numpy's choice (60,000 x 10)": speedup(),
        "growth with n (exponent; 1 is linear)": growth_with_n(),
        "growth with K (exponent; 1 is linear)": growth_with_classes(),
        "a million examples of 1,000 classes": memory(1_000_000, 1000),
    }
    torch.set_num_threads(threads)
    for name, result in results.items():
        shown = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in result.items()
        )
        print(f"{name}: {shown}")
    return results


def speedup(n: int = 60_000, num_classes: int = 10, rounds: int = 5) -> dict[str, float]:
    """Return how many times faster `mcl-skewed` is than a loop, round by round."""
    seconds = measure({"loop": lambda: loop(n, num_classes), "ours": lambda: draw(n, num_classes)}, rounds)
    return ratio(seconds, of="loop", to="ours")


def growth_with_n() -> dict[str, float]:
    """Return the exponent b of time = a n^b, from 50,000 to 800,000 examples of 10 classes."""
    return _exponent({n: (n, 10) for n in (50_000, 100_000, 200_000, 400_000, 800_000)})


def growth_with_classes() -> dict[str, float]:
    """Return the exponent b of time = a K^b, from 10 to 640 classes of 20,000 examples."""
    return _exponent({k: (20_000, k) for k in (10, 40, 160, 640)})


def memory(n: int, num_classes: int) -> dict[str, Any]:
    """Return the peak memory of a fresh process that draws n sets, in megabytes; the labels are part of it."""
    code = PROOF_OF_MEMORY.format(n=n, num_classes=num_classes, alpha=ALPHA)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def draw(n: int, num_classes: int) -> Any:
    """Draw the sets of n examples our way."""
    import torch

    from wsl_toolkit.plugins.loading import load_plugins

    generator = load_plugins().registry.create("generator", "mcl-skewed", {"alpha": ALPHA})
    y = torch.arange(n) % num_classes
    return generator.sample(torch.zeros(n, 1), y, num_classes, torch.Generator().manual_seed(0))


def loop(n: int, num_classes: int) -> Any:
    """Draw the sets of n examples one by one; sizes come all at once, so only the sets are a loop."""
    import numpy as np

    rng = np.random.default_rng(0)
    weights = ALPHA ** np.arange(num_classes - 1)
    sizes = rng.choice(num_classes - 1, size=n, p=weights / weights.sum()) + 1
    y = np.arange(n) % num_classes
    classes = np.arange(num_classes)
    mask = np.ones((n, num_classes), dtype=bool)
    for i in range(n):
        mask[i, rng.choice(classes[classes != y[i]], size=sizes[i], replace=False)] = False
    return mask


def _exponent(cases: dict[int, tuple[int, int]], rounds: int = 5) -> dict[str, float]:
    """Return the slope of log time over log size, by least squares on the fastest rounds.

    Processor time, because on a busy machine a long run loses more turns than a short one.
    """
    fastest = dict.fromkeys(cases, math.inf)
    for _ in range(rounds + 1):
        for size, case in cases.items():
            start = time.process_time()
            draw(*case)
            fastest[size] = min(fastest[size], time.process_time() - start)
    points = [(math.log(size), math.log(seconds)) for size, seconds in fastest.items()]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return {"exponent": slope, **{f"seconds at {size}": seconds for size, seconds in fastest.items()}}


if __name__ == "__main__":
    main()
