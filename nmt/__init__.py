"""Neural machine translation on the command line and from Python:

from nmt import Translator
Translator.load("runs/multi30k").translate(["I'm thirsty."])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nmt.core.version import __version__

if TYPE_CHECKING:
    from nmt.translation.guard import Guard
    from nmt.translation.translator import Line, Translation, Translator

__all__ = ["Guard", "Line", "Translation", "Translator", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the public classes on first access, so that `import nmt` does not load PyTorch."""
    if name in ("Line", "Translation", "Translator"):
        from nmt.translation import translator

        return getattr(translator, name)
    if name == "Guard":
        from nmt.translation.guard import Guard

        return Guard
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return the names for completion, without importing the classes."""
    return sorted({*globals(), *__all__})
