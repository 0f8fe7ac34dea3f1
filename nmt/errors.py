"""Errors a user can cause. Each is one line, a hint, and an exit code; a traceback means a bug in nmt.

NMTError            exit 1: the request was understood and could not be carried out
├── DataError       text, corpora and prepared stores
├── DownloadError   a corpus could not be fetched
├── CheckpointError a model folder is missing, incomplete, damaged or does not match
├── TrainingError   training had to stop (non-finite loss, run directory in use)
└── UsageError      exit 2: the command line or the configuration is wrong
    └── ConfigError an unknown key, a value of the wrong type or out of range
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NMTError(Exception):
    """A failure the user can understand and mend; `message` says what, `hint` what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class DataError(NMTError):
    """Text, a corpus or a prepared store is not as it must be."""


class DownloadError(NMTError):
    """A corpus could not be fetched or its archive cannot be trusted."""


class CheckpointError(NMTError):
    """A model folder is missing, incomplete, damaged or does not fit its tokenizer."""


class NewerCheckpointError(CheckpointError):
    """A checkpoint is of a format that a later version writes: nothing is wrong with it."""


class TrainingError(NMTError):
    """Training had to stop; the last good checkpoint is intact."""


class UsageError(NMTError):
    """The command line is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """The configuration is wrong: an unknown key, a value of the wrong type or out of range."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown `word`: the closest known word, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"
