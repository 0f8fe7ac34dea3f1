"""The `nmt` command, also as `python -m nmt`."""

from __future__ import annotations

import gc

MAX_NEW_OBJECTS = 200_000
"""Number of new objects after which Python looks for garbage; its default is less than 10,000."""


def main() -> None:
    """Run the command with fewer searches for garbage."""
    # Imports make many objects and no garbage. Collecting it would take a tenth of the time of a
    # short translation, and as much again at the end, unless the objects are frozen.
    gc.set_threshold(MAX_NEW_OBJECTS)
    from nmt.cli import main as command

    try:
        command()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
