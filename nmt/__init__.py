"""Neural machine translation on the command line and from Python:

from nmt import Translator
Translator.load("runs/multi30k").translate(["I'm thirsty."])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nmt.core.version import __version__

if TYPE_CHECKING:
    from nmt.core.errors import NMTError
    from nmt.core.plugins import register
    from nmt.training.api import TrainingResult, train
    from nmt.translation.guard import Guard
    from nmt.translation.translator import Line, Translation, Translator

__all__ = [
    "Guard",
    "Line",
    "NMTError",
    "TrainingResult",
    "Translation",
    "Translator",
    "__version__",
    "register",
    "train",
]
_MODULES = {
    "Guard": "nmt.translation.guard",
    "Line": "nmt.translation.translator",
    "NMTError": "nmt.core.errors",
    "TrainingResult": "nmt.training.api",
    "Translation": "nmt.translation.translator",
    "Translator": "nmt.translation.translator",
    "register": "nmt.core.plugins",
    "train": "nmt.training.api",
}


def __getattr__(name: str) -> Any:
    """Import public names on first access, so that `import nmt` does not load PyTorch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'nmt' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the names for completion, without importing the classes."""
    return sorted({*globals(), *__all__})
