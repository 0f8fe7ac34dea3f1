"""Errors that a user can cause. Each has a one-line message, usually a hint, and an exit code.

A traceback means a bug in nmt.

NMTError                        exit code 1: the request is valid but failed
├── DataError                   data files, corpora and prepared data
├── DownloadError               the download of a corpus or a published model
├── CheckpointError             a run, checkpoint or model to import is missing, damaged or
│   │                           not supported, or does not match its tokenizer or config
│   └── NewerCheckpointError    a later version of nmt wrote the checkpoint
├── TrainingError               training cannot continue: non-finite loss, out of memory
├── StoppedError                exit code 75: a signal has stopped a resumable training run
└── UsageError                  exit code 2: the command line or the config is wrong
    ├── ConfigError             an unknown key, a value of the wrong type or out of range
    │   └── PluginError         a component of a plug-in returns something else than expected
    └── MissingPackageError     a package that not every installation has
"""

from __future__ import annotations

import contextlib
import difflib
import errno
from collections.abc import Collection, Iterable, Iterator

MAX_MESSAGE = 1000
"""Maximum number of characters of a message: it may quote a value from a file."""


class NMTError(Exception):
    """An error that the user can fix: `message` says what is wrong, `hint` how to fix it."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        if len(message) > MAX_MESSAGE:
            half = MAX_MESSAGE // 2
            message = f"{message[:half]}...{message[-half:]}"  # says what is wrong at either end
        super().__init__(message)
        self.message = message
        self.hint = hint


class DataError(NMTError):
    """A data file, a corpus or prepared data is invalid."""


class DownloadError(NMTError):
    """A corpus or a published model cannot be downloaded, or an archive fails verification."""


class CheckpointError(NMTError):
    """A run, a checkpoint or a model to import is missing, damaged, not supported or does not match
    another part."""


class NewerCheckpointError(CheckpointError):
    """A later version of nmt wrote the checkpoint; it is not damaged."""


class TrainingError(NMTError):
    """Training cannot continue; the latest checkpoint is intact."""


class StoppedError(NMTError):
    """A signal has stopped a training run. It is saved, and the same command with --resume
    continues it."""

    exit_code = 75
    """EX_TEMPFAIL of sysexits.h: try again later. A shell does not run the command after `&&`."""


class UsageError(NMTError):
    """The command line is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """The config is wrong: an unknown key, a value of the wrong type or out of range."""


class PluginError(ConfigError):
    """A component of a plug-in returns something else than expected."""


class MissingPackageError(UsageError):
    """A package is not installed; the hint is the line that installs it."""


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, an exhausted quota and a file that exceeds a limit."""
_NO_PERMISSION = "choose another path, or change its permissions"
_HINTS = dict.fromkeys(DISK_FULL, "free some disk space") | {
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: _NO_PERMISSION,
    errno.ENOTDIR: "a parent of this path is a file, not a directory",
}


@contextlib.contextmanager
def write_errors(target: object, hint: str) -> Iterator[None]:
    """Raise an NMTError that names a file or directory for an OSError from writing it; `hint`: see
    `file_hint`."""
    try:
        yield
    except OSError as error:
        raise NMTError(f"cannot write {target}: {error.strerror}", file_hint(error, hint)) from None


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error of another library, or its type."""
    return str(error).split("\n")[0] or type(error).__name__


def file_hint(error: OSError, default: str = "") -> str:
    """Return the hint for an error of the file system: that for its number, or the default."""
    return _HINTS.get(error.errno or 0, default)


MAX_CHOICES = 500
"""Names of a file may be many, and comparing them is slow."""


def suggest(word: str, choices: Iterable[str]) -> str:
    """Return the hint for an unknown `word`: the closest choice, or all of them, at most
    `MAX_CHOICES`; empty without choices."""
    names = sorted(choices)[:MAX_CHOICES]
    if not names:
        return ""
    return suggest_closest(word, names) or f"choose from: {', '.join(names)}"


def suggest_closest(word: str, choices: Iterable[str]) -> str:
    """Return the hint with the choice that is similar to an unknown `word`; empty if there is
    none."""
    matches = difflib.get_close_matches(word, sorted(choices)[:MAX_CHOICES], n=1)
    return f"did you mean '{matches[0]}'?" if matches else ""


def check_choice(kind: str, name: str, choices: Collection[str]) -> None:
    """Raise a UsageError for a name that is not one of the choices, such as the `kind`
    "precision"."""
    if name not in choices:
        raise UsageError(f"unknown {kind} '{name}'", suggest(name, choices))
