"""Where the charts, examples and model checkpoints lie: in the checkout, or inside the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


def asset(name: str) -> Path:
    """The folder ``helm`` or ``examples``; raises FileNotFoundError when the installation lacks it."""
    for root in (_CHECKOUT, _PACKAGE):
        if (root / name).is_dir():
            return root / name
    raise FileNotFoundError(f"{name}/ is neither beside the code nor inside the package: install xdeepserve again")


def models() -> Path:
    """The servers' model store: what ``file:///models/`` stands for."""
    return asset("examples") / "models"
