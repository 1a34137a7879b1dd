"""How long planning takes on one core: a process of its own, since a linear algebra library counts cores when it loads.

``python -m xdeepserve_bench.eplb_speed BUDGET RUNS`` prints processor seconds, a line a run; the first is not counted.
"""

import os
import subprocess
import sys
import time

from eplb import Cluster
from eplb.plan import plan
from eplb.policies import Options
from eplb.search import BUDGETS
from eplb.traces.generate import generate


def seconds(budget: str, runs: int) -> list[float]:
    """Processor seconds of ``runs`` warm plans of trace ``paper`` on 288 NPUs of 2 slots, forecast included."""
    command = [sys.executable, "-m", "xdeepserve_bench.eplb_speed", budget, str(runs)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return [float(line) for line in done.stdout.split()]


def main(budget: str, runs: int) -> None:
    """Prints them."""
    window, cluster = generate("paper").fit, Cluster(288, 2)
    options = Options(BUDGETS[budget])
    for run in range(runs + 1):
        began = time.process_time()
        plan(window, cluster, options=options)
        if run:
            print(time.process_time() - began)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
