"""Filtering of noisy corpora: scores of all pairs, shard by shard, and the pairs that are kept.

A directory keeps the fitted scorers and the scores, so that another threshold needs no new scores.
Shape suffixes: N pairs, K scores.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

import numpy as np

from nmt.core.console import log, progress
from nmt.core.errors import DataError
from nmt.core.parts import Part
from nmt.core.paths import locked, write_bytes
from nmt.core.processes import Executor
from nmt.data.arrays import Floats
from nmt.data.filter import Combination, PairScorer, fit_scorers, load, sample_pairs, save
from nmt.data.pairs import Pair
from nmt.data.shards import RAW, Shard, Splitter, UnfinishedPartsError
from nmt.data.sources.corpus import Split, total_pairs
from nmt.jobs.dual_scorer import DualScorer

SHARD_SIZE = 50_000
"""Pairs of a shard."""
CHUNK_SIZE = 5_000
"""Pairs that are scored together."""
MAX_DUAL_SAMPLE = 5_000
"""Pairs from which the distribution of the models' scores is estimated."""
DUAL = "dual"
SCORES = "scores"
MODEL = "scorers.npz"

Models = tuple[str, str]
"""Names or directories of a model from source to target, and of one from target to source."""


@dataclass(frozen=True)
class Filter:
    """The scoring of corpora in a directory."""

    directory: Path
    corpora: Sequence[Split]
    models: Models | None
    part: Part

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def score(self, executor: Executor) -> Floats:
        """Score all pairs, skipping shards that are scored already, and return the scores, [N].

        Raises:
            DataError: there are no pairs.
            UnfinishedPartsError: other machines have not finished their shards.
        """
        scorers = self.directory / MODEL
        with locked(self.directory / ".fit.lock", lambda: log("waiting for the fitted scores")):
            if not scorers.is_file():
                self._fit(scorers)
        splitter = Splitter(self.directory, "filter", self.part, SHARD_SIZE)
        if not splitter.is_complete(SCORES, self.part):
            self._score_shards(splitter, executor)
        if not splitter.is_complete(SCORES):
            raise UnfinishedPartsError
        scores = [np.fromfile(shard.path(SCORES), np.float32) for shard in splitter.shards]
        return np.concatenate(scores)

    def pairs(self) -> Iterator[Pair]:
        """Yield all pairs."""
        for corpus in self.corpora:
            yield from corpus.pairs()

    def _fit(self, path: Path) -> None:
        """Learn the scores from a sample, and save them."""
        num_pairs = total_pairs(self.corpora)
        with progress(
            num_pairs, "sampling", " pairs", unit_scale=True, iterable=self.pairs()
        ) as pairs:
            sample = sample_pairs(pairs)
        log(f"learning scores from {len(sample):,} pairs")
        scorers = fit_scorers(sample)
        columns = {name: scorer.score(sample) for name, scorer in scorers.items()}
        if self.models:
            step = 1 + len(sample) // MAX_DUAL_SAMPLE
            columns[DUAL] = DualScorer.load(*self.models).score(sample[::step])
        save(path, scorers, Combination.fit(columns))

    def _score_shards(self, splitter: Splitter, executor: Executor) -> None:
        num_pairs = total_pairs(self.corpora)
        with progress(num_pairs, "scoring", " pairs", unit_scale=True) as bar:
            readers = [corpus.pairs() for corpus in self.corpora]
            shards = splitter.split(readers, SCORES, bar.update)
            score = partial(_score_shard, fitted=self.directory / MODEL, models=self.models)
            for _ in executor.map(score, shards, bar.update):
                pass


def _score_shard(
    shard: Shard, report: Callable[[int], object] = int, *, fitted: Path, models: Models | None
) -> None:
    """Write the scores of a shard, and delete its text."""
    scorers, combination = _load_scorers(fitted, models)
    pairs = shard.read_text(RAW)
    scores = bytearray()
    while chunk := list(islice(pairs, CHUNK_SIZE)):
        columns = {name: scorer.score(chunk) for name, scorer in scorers.items()}
        score_N = combination.combine(columns)
        scores += score_N.astype(np.float32).tobytes()
        report(len(chunk))
    write_bytes(shard.path(SCORES), bytes(scores))
    shard.write_record(SCORES, {"pairs": shard.num_pairs})
    shard.delete_text(RAW)


@lru_cache(maxsize=1)
def _load_scorers(path: Path, models: Models | None) -> tuple[dict[str, PairScorer], Combination]:
    fitted, combination = load(path)
    scorers: dict[str, PairScorer] = dict(fitted)
    if models:
        scorers[DUAL] = DualScorer.load(*models)
    return scorers, combination


def threshold_of_share(score_N: Floats, share: float) -> float:
    """Return the score that this share of the pairs reaches."""
    num_kept = max(1, round(share * len(score_N)))
    place = len(score_N) - num_kept
    return float(np.partition(score_N, place)[place])


def kept_pairs(pairs: Iterator[Pair], score_N: Floats, min_score: float) -> Iterator[Pair]:
    """Yield the pairs with at least this score.

    Raises:
        DataError: there are more or fewer pairs than scores.
    """
    end = 0
    while chunk := list(islice(pairs, CHUNK_SIZE)):
        start = end
        end += len(chunk)
        is_kept_N = score_N[start:end] >= min_score
        if len(is_kept_N) != len(chunk):
            break
        yield from itertools.compress(chunk, is_kept_N.tolist())
    if end != len(score_N):
        raise DataError("the text changed while it was scored", "run the command again")
