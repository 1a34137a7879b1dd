"""``python -m flowserve.frontend``: the configuration comes from XDEEPSERVE_CONFIG or ``--config FILE``."""

from flowserve.frontend.server import main
from flowserve.process import run

if __name__ == "__main__":
    run(main)
