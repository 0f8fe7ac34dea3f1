"""Download of models from the Hugging Face Hub with `huggingface_hub`: resumable, cached, and
offline from its cache.

`$HF_ENDPOINT`, `$HF_HOME` and `$HF_HUB_OFFLINE` apply as in Hugging Face's tools.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, errors, snapshot_download, try_to_load_from_cache

from nmt.core.console import escape_control, format_bytes, log
from nmt.core.errors import DownloadError, first_line
from nmt.models.importers.huggingface import FILES, WEIGHT_FILES, check_type
from nmt.runs.run_report import UNKNOWN_LICENSE
from nmt.text.separate_tokenizer import SOURCE, TARGET

HTTPError: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
"""Of httpx or httpx2, depending on the version of huggingface_hub."""


def download(repository: str, revision: str | None = None) -> tuple[Path, dict[str, Any]]:
    """Download the files of a model that an import needs.

    Args:
        repository: `OWNER/NAME`.
        revision: commit, branch or tag; None: the main branch.

    Returns:
        The directory of the files, and a record of their origin.

    Raises:
        CheckpointError: the model is of another type.
        DownloadError: the repository does not exist or requires a login, or the Hub cannot be
            reached and the model is not in the cache.
    """
    try:
        return _download(repository, revision)
    except (errors.GatedRepoError, errors.RepositoryNotFoundError, errors.HFValidationError):
        raise DownloadError(
            f"the Hugging Face Hub has no public model {repository}",
            "check the name, or log in with hf auth login",
        ) from None
    except errors.RevisionNotFoundError:
        raise DownloadError(
            f"{repository} has no revision {revision}", "leave out --revision"
        ) from None
    except (
        HTTPError,
        errors.LocalEntryNotFoundError,
        OSError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise DownloadError(
            f"cannot download {repository}: {first_line(error)}", "run the command again to resume"
        ) from None


def _download(repository: str, revision: str | None) -> tuple[Path, dict[str, Any]]:
    try:
        info = HfApi().model_info(repository, revision=revision, files_metadata=True)
    except errors.HfHubHTTPError:  # the Hub has answered
        raise
    except (errors.OfflineModeIsEnabled, HTTPError) as error:
        return _from_cache(repository, revision, error)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    weights = next((name for name in WEIGHT_FILES if name in sizes), None)
    if weights is None:
        raise DownloadError(f"{repository} has no weights for PyTorch", "choose another model")
    for name in ("config.json", SOURCE, TARGET, "vocab.json"):
        if name not in sizes:
            raise DownloadError(f"{repository} has no {name}", "choose another model")
    if info.config:
        check_type(info.config, repository)
    files = [name for name in (*FILES, weights) if name in sizes]
    num_bytes = sum(sizes[name] for name in files)
    license_ = escape_control(str(getattr(info.card_data, "license", None) or UNKNOWN_LICENSE))
    log(f"downloading {repository} ({format_bytes(num_bytes)}, license {license_})")
    directory = Path(snapshot_download(repository, revision=revision, allow_patterns=files))
    return directory, {"source": repository, "revision": directory.name, "license": license_}


def _from_cache(
    repository: str, revision: str | None, error: Exception
) -> tuple[Path, dict[str, Any]]:
    config = try_to_load_from_cache(repository, "config.json", revision=revision or "main")
    if not isinstance(config, str):
        raise DownloadError(
            f"cannot reach the Hugging Face Hub ({first_line(error)}), and {repository} is not in"
            " its cache",
            "connect to the internet, or import a local directory",
        )
    directory = Path(config).parent
    log(f"cannot reach the Hugging Face Hub; using the cached {repository}")
    return directory, {"source": repository, "revision": directory.name, "license": UNKNOWN_LICENSE}
