"""What `nmt backtranslate` and `nmt distill` have in common: translate, filter and write a corpus.

.NAME-part/settings.json    settings, to reject a resumed command with others, and statistics of the
text
           source           the text to translate, without repetitions
           reference        its references
           candidates       translations, first in one file per shard; see `nmt.jobs.sharding`

The process that completes the last shard filters the translations and writes the directory NAME.
Each step is repeated if it was interrupted; complete translations are never lost.
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.core.console import SILENT, log
from nmt.core.errors import NMTError, UsageError, check_choice
from nmt.core.paths import locked, new_directory, write_text
from nmt.core.untrusted_files import JsonObject, read_record
from nmt.evaluate.test_sets import load_test_pairs
from nmt.jobs.output import show
from nmt.jobs.sharding import Shard
from nmt.jobs.translation_job import TranslationJob, translate_file

if TYPE_CHECKING:
    from nmt.data.pairs import Pair
    from nmt.runs.model_files import ModelFiles
    from nmt.synthetic.filters import Filters
    from nmt.synthetic.source_text import SourceText
    from nmt.translation.translator import Translation, Translator

SETTINGS, CANDIDATES = "settings.json", "candidates"


class ScoredFormat:
    """All candidates of a line as a line of JSON, with their log-probabilities per token if they
    are known."""

    lines_per_input = 1

    def matches(self, line: str) -> bool:
        """Return whether an existing line may have this format."""
        return line.startswith("[[")

    def __call__(self, source: str, translations: Sequence[Translation]) -> list[str]:
        """Return the line."""
        from nmt.synthetic.filters import Candidate, format_candidates

        return [
            format_candidates(
                Candidate(each.text, each.log_prob / len(each.tokens) if each.tokens else None)
                for each in translations
            )
        ]


@dataclass(frozen=True)
class Options:
    """Options of both commands."""

    command: str
    output: Path
    search: str
    filters: Filters
    tests: tuple[str, ...]
    shard: Shard
    resume: bool
    encoding_errors: str

    @property
    def work(self) -> Path:
        """The directory of intermediate files."""
        return self.output.with_name(f".{self.output.name}-part")


def check_options(
    output: Path,
    resume: bool,
    search: str,
    select: str,
    min_score: float | None,
    clean_steps: Sequence[str],
    ignore: Sequence[str],
) -> None:
    """Check the options before the teacher is loaded.

    Raises:
        UsageError: an option is invalid.
        ConfigError: the search or a cleaning step is invalid.
    """
    from nmt.data.clean import cleaning_pipeline
    from nmt.evaluate.metrics import SENTENCE_METRICS
    from nmt.search import parse_search
    from nmt.synthetic.filters import NAMES

    if output.name in ("", ".."):
        raise UsageError(f"--output {output} names no directory", "for example --output data/bt")
    if output.exists() and not resume:
        raise UsageError(f"{output} already exists", "choose another --output, or delete it")
    if min_score is not None and not math.isfinite(min_score):
        raise UsageError(
            f"--min-score must be a number, got {min_score}", "a typical value is -1.0"
        )
    if select:
        check_choice("metric", select, SENTENCE_METRICS)
    for name in ignore:
        check_choice("filter", name, NAMES)
    cleaning_pipeline((), clean_steps)
    if search and parse_search(search).n_best == 1 and select:
        raise UsageError(
            f"--select needs several hypotheses; {search} has one",
            "for example beam(beam_size=8, top_beams=8)",
        )


def _report_if_complete(output: Path, resume: bool, settings: Mapping[str, Any]) -> bool:
    """Print the corpus and return True if it exists and `resume` is set; return False if it does
    not exist.

    Raises:
        UsageError: it exists, but is incomplete, or `resume` is not set, or its record has another
            of the settings: `command` or the fields of the origin and its filters.
    """
    from nmt.data.sources.corpus import RECORD

    if not output.exists():
        return False
    hint = "choose another --output, or delete it"
    if not (resume and (output / RECORD).is_file()):
        raise UsageError(f"{output} already exists", hint)
    origin: Any = read_record(output / RECORD).get("origin")
    recorded = {"command": ""}
    with suppress(TypeError, AttributeError):  # damaged, or of another source
        recorded |= origin | origin.get("filters", {})
    current = _as_json(settings)
    names = recorded.keys() & current.keys() - {"scores", "shards"}
    if any(recorded[name] != current[name] for name in names):
        raise UsageError(f"{output} was made in another way", hint)
    log(f"{output} is complete")
    if not SILENT:
        show(str(output))
    return True


def synthesize(
    options: Options,
    translator: Translator,
    models: list[Path],
    text: SourceText,
    train_command: Callable[[ModelFiles, str], str],
) -> None:
    """Translate the shard of this process; the process that completes the last shard writes the
    corpus.

    `train_command` returns the command to train on the corpus, for the first model and the command
    that builds it.
    """
    from nmt.models.discovery import find_models

    teachers = find_models(models)
    settings = _settings(options, text, teachers)
    filters = asdict(options.filters) | {"tests": options.tests}
    with _output_locked(options):
        try:
            if _report_if_complete(options.output, options.resume, settings | filters):
                _remove(options)
                return
            tests = _load_tests(options)
            saved = _prepare(options, text, settings, models[0])
        except NMTError:
            if not (options.work / SETTINGS).exists():
                _remove(options)
            raise
    _translate_shard(options, translator, saved["settings"]["scores"])
    with _output_locked(options):
        if not options.output.exists() and (options.work / CANDIDATES).exists():
            build_command = _build_command()
            origin = settings | {"filters": filters, "build_command": build_command}
            origin["statistics"] = saved["statistics"]
            _finish(options, origin, tests)
            command = train_command(teachers[0], build_command)
            log(f"train on it: {command}", every_rank=True)
            show(str(options.output))
        if options.output.exists():
            _remove(options)


def _settings(options: Options, text: SourceText, teachers: list[ModelFiles]) -> JsonObject:
    """Return what a resumed command must have in common with the first one."""
    from nmt.runs.run_report import parent_record

    settings: JsonObject = _as_json(
        {
            "command": options.command,
            "text": text.checksums,
            "model": [parent_record(each) for each in teachers],
            "search": options.search,
            "scores": options.filters.min_score is not None,
            "shards": options.shard.count,
        }
    )
    return settings


def _as_json(value: Any) -> Any:
    """Return a value as it is read from a JSON file: tuples are lists."""
    return json.loads(json.dumps(value))


def _load_tests(options: Options) -> list[tuple[str, list[Pair]]]:
    tests = []
    for name in options.tests:
        tests += load_test_pairs(name, options.filters.corpus_languages, options.encoding_errors)
    return tests


def _translate_shard(options: Options, translator: Translator, scores: bool) -> None:
    """Translate the shard of this process, and join the shards if it is the last one.

    Raises:
        UsageError: an earlier process has begun it, and `resume` is not set; or another process is
            at work.
    """
    from nmt.synthetic.source_text import SOURCE

    path = options.work / CANDIDATES
    shard = options.shard
    busy = UsageError(
        f"another process is translating shard {shard.number} of {options.output}",
        "wait for it, or stop it",
    )
    with locked(options.work / f".{shard.number}.lock", busy):
        is_begun = shard.path(path).exists() or shard.is_done(path) or path.exists()
        if is_begun and not options.resume:
            raise UsageError(
                f"{options.output} is incomplete",
                f"continue with --resume, or delete {options.work}",
            )
        job = TranslationJob(translator, options.search, ScoredFormat(), scores, "", ())
        source = options.work / SOURCE
        translate_file(job, source, path, shard, join=True, resume=True, encoding_errors="strict")


@contextmanager
def _output_locked(options: Options) -> Iterator[None]:
    output = options.output
    try:
        options.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create {output}: {error.strerror}", "choose another --output"
        ) from None
    with locked(_lock(output), lambda: log(f"another process works on {output}; waiting for it")):
        yield


def _remove(options: Options) -> None:
    """Remove the intermediate files and the lock file, which the caller holds."""
    shutil.rmtree(options.work, ignore_errors=True)
    with suppress(OSError):  # Windows cannot delete an open file
        _lock(options.output).unlink()


def _lock(output: Path) -> Path:
    return output.with_name(f".{output.name}.lock")


def _prepare(options: Options, text: SourceText, settings: JsonObject, model: Path) -> JsonObject:
    """Write the text to translate, unless an earlier process has; return the settings and the
    statistics of the text.

    Raises:
        UsageError: the earlier process had other settings, or the text is in another language.
    """
    file = options.work / SETTINGS
    if file.is_file():
        saved: JsonObject = json.loads(file.read_text(encoding="utf-8"))
        _check_unchanged(options, saved["settings"], settings)
        return saved
    text.check_language(model)
    options.work.mkdir(parents=True, exist_ok=True)
    statistics = text.write(options.work)
    for step, count in statistics["dropped"].items():
        if count:
            log(f"{step} dropped {count:,} lines before the translation")
    log(f"translating {statistics['lines']:,} lines of {text.name} with {options.search}")
    saved = {"settings": settings, "statistics": statistics}
    write_text(file, json.dumps(saved))
    return saved


def _check_unchanged(options: Options, saved: JsonObject, settings: JsonObject) -> None:
    for name, value in settings.items():
        if saved[name] == value or (name == "scores" and saved[name]):  # without --min-score
            continue
        if name == "text":
            raise UsageError(
                f"the text of {options.output} has changed",
                f"restore it, or delete {options.work}",
            )
        option = "--min-score" if name == "scores" else name
        raise UsageError(
            f"{options.output} was started with another value of '{option}'",
            f"continue with the same options, apart from the filters, or delete {options.work}",
        )


def _finish(options: Options, origin: JsonObject, tests: list[tuple[str, list[Pair]]]) -> None:
    """Filter the translations, write the corpus and report it, on any rank."""
    from nmt.data.sources.corpus import write_record
    from nmt.synthetic.source_text import REFERENCE, SOURCE

    work = options.work
    src, tgt = options.filters.corpus_languages
    names = (f"train.{src}", f"train.{tgt}")
    with new_directory(options.output) as directory:
        num_pairs, dropped = options.filters.apply(
            work / SOURCE,
            work / REFERENCE,
            work / CANDIDATES,
            (directory / names[0], directory / names[1]),
            tests,
        )
        origin["statistics"]["filtered"] = dropped
        write_record(directory, options.output.name, origin, dict.fromkeys(names, num_pairs))
    for name, count in dropped.most_common():
        log(f"filter {name} dropped {count:,} pairs", every_rank=True)
    paths = " and ".join(str(options.output / name) for name in names)
    log(f"wrote {num_pairs:,} of {num_pairs + dropped.total():,} pairs to {paths}", every_rank=True)


def _build_command() -> str:
    """Return the command line of this process without the options that only this process needs."""
    words = iter(sys.argv[1:])
    kept = []
    for word in words:
        if word == "--shard":
            next(words, None)
        elif word != "--resume" and not word.startswith("--shard="):
            kept.append(word)
    return f"nmt {shlex.join(kept)}"
