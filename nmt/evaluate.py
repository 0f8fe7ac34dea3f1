"""Test sets in, scores out, with the hypotheses and a report left behind for anyone to check."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nmt import __version__
from nmt.console import log, progress
from nmt.data.pairs import read_pairs
from nmt.data.sources import open_split
from nmt.errors import DataError, NMTError, UsageError, suggest
from nmt.metrics import METRICS, Score
from nmt.paths import write_text
from nmt.translate import Translator, in_windows


@dataclass(frozen=True)
class TestSet:
    """Source lines and one reference for each."""

    name: str
    sources: list[str]
    references: list[str]

    __test__ = False  # not a pytest class


def own_test_set(translator: Translator) -> TestSet:
    """Return the test split of the corpus that the model was trained on."""
    data = translator.config.data
    spec = data.test or data.train[0]
    split = open_split(spec, "test", data.src, data.tgt)
    return _from_pairs(split.name, list(split.pairs()))


def file_test_set(src: Path, ref: Path, errors: str = "strict") -> TestSet:
    """Return a test set of two aligned files."""
    return _from_pairs(str(src), list(read_pairs(src, ref, errors=errors)))


def named_test_set(name: str, src: str, tgt: str) -> TestSet:
    """Return one of sacrebleu's test sets, downloaded on first use.

    Raises:
        UsageError: sacrebleu knows no such set, or not in this direction.
        DataError: it could not be downloaded.
    """
    import sacrebleu

    known = sacrebleu.get_available_testsets()
    if name not in known:
        raise UsageError(f"unknown test set '{name}'", suggest(name, known))
    pair = f"{src}-{tgt}"
    if pair not in sacrebleu.get_langpairs_for_testset(name):
        raise UsageError(f"test set {name} has no {pair}")
    try:
        sources = Path(sacrebleu.get_source_file(name, pair)).read_text(encoding="utf-8")
        references = Path(sacrebleu.get_reference_files(name, pair)[0]).read_text(encoding="utf-8")
    except (Exception, SystemExit) as error:  # sacrebleu raises whatever its downloader raised, or exits
        reason = str(error).split("\n")[0] or type(error).__name__
        raise DataError(
            f"cannot download the test set {name}: {reason}",
            "without a network, give your own files with --src and --ref",
        ) from None
    pairs = zip(sources.rstrip("\n").split("\n"), references.rstrip("\n").split("\n"), strict=True)
    return _from_pairs(name, list(pairs))


def _from_pairs(name: str, pairs: list[tuple[str, str]]) -> TestSet:
    if not pairs:
        raise DataError(f"the test set {name} is empty")
    return TestSet(name, [src for src, _ in pairs], [tgt for _, tgt in pairs])


def evaluate(
    translator: Translator, test: TestSet, names: Sequence[str], spec: str, output: Path
) -> tuple[list[Score], Path]:
    """Translate a test set, score it, and write `TEST.hyp` and `TEST.json` into the folder `output`.

    Args:
        translator: the model.
        test: sources and references.
        names: metrics, out of `METRICS`.
        spec: search.
        output: folder for hypotheses and report; made if missing.

    Returns:
        The scores in the order of `names`, and the report's path.
    """
    _make_folder(output)  # first: a mistake must not cost the translation of a whole test set
    hypotheses = []
    with progress(len(test.sources), "translating", " lines") as bar:
        for best in translator.stream(in_windows(test.sources), spec, tick=bar.update):
            hypotheses.append(best[0].text)
    scores = [METRICS[name](hypotheses, test.references) for name in names]
    report = {
        "model": str(translator.origin),
        "test": test.name,
        "lines": len(hypotheses),
        "direction": f"{translator.config.data.src}-{translator.config.data.tgt}",
        "search": spec,
        "nmt": __version__,
        "scores": [asdict(score) for score in scores],
    }
    try:
        stem = re.sub(r"[^\w.-]+", "-", test.name).strip("-.")
        write_text(output / f"{stem}.hyp", "".join(f"{line}\n" for line in hypotheses))
        write_text(output / f"{stem}.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise NMTError(f"cannot write into {output}: {error.strerror}", "name another folder with --output") from None
    log(f"hypotheses and report are in {output / stem}.hyp and .json")
    return scores, output / f"{stem}.json"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise UsageError(f"cannot write into {path}: {reason}", "name another folder with --output") from None
