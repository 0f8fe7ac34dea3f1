"""Lexical shortlists, learned from sentence pairs by word alignment.

Shape suffixes: V vocabulary, K entries of the lexicon, C candidates, N translations of all tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice

import numpy as np

from nmt.core.console import progress
from nmt.data.arrays import Floats, Indices
from nmt.data.filter.lexicon import Lexicon
from nmt.data.filter.units import id_blocks
from nmt.data.pairs import Pair
from nmt.search.shortlist import Shortlist
from nmt.text.normalization import normalize
from nmt.text.tokenizer import EOS, Tokenizer

MAX_TRANSLATIONS = 50
"""Of a token, the most probable ones."""
NUM_FREQUENT = 200
"""Number of target tokens that are candidates of every sentence: the most frequent ones."""
MAX_PAIRS = 2_000_000
MAX_CELLS = 40_000_000
"""Pairs of a source and a target token to learn from, which take about 1.2 GB."""
BATCH_PAIRS = 1000
EncodedPair = tuple[list[int], list[int]]


def learn_shortlist(pairs: Iterable[Pair], tokenizer: Tokenizer) -> Shortlist:
    """Return the translations of each token of a shared vocabulary.

    They are the most probable ones of IBM model 1. The end token, which ends every source sentence,
    has the most frequent target tokens instead.
    """
    encoded = _encode(pairs, tokenizer)
    vocab_size = len(tokenizer)
    # Probabilities of translations.
    lexicon = Lexicon.fit(partial(id_blocks, encoded), vocab_size, MAX_CELLS)
    source_K, target_K = np.divmod(lexicon.keys_K, vocab_size)
    is_likely_K = lexicon.target_K > 0
    source_N, target_N = _best(
        source_K[is_likely_K], target_K[is_likely_K], lexicon.target_K[is_likely_K]
    )
    # Frequent target tokens are the translations of the end token.
    frequent_C = _frequent(encoded, vocab_size)
    source_N = np.append(source_N, np.full(len(frequent_C), EOS))
    target_N = np.append(target_N, frequent_C)
    return Shortlist.of(
        source_N,
        target_N,
        vocab_size,
        num_frequent=EOS + 1,
        max_translations=max(MAX_TRANSLATIONS, len(frequent_C)),
    )


def _encode(pairs: Iterable[Pair], tokenizer: Tokenizer) -> list[EncodedPair]:
    """Return the distinct tokens of both sides of the first pairs, up to the limits."""
    encoded: list[EncodedPair] = []
    num_cells = 0
    remaining = islice(pairs, MAX_PAIRS)
    with progress(MAX_CELLS, "reading pairs", " cells", unit_scale=True) as bar:
        while num_cells < MAX_CELLS and (batch := list(islice(remaining, BATCH_PAIRS))):
            sources, targets = zip(*batch, strict=True)
            source_ids = tokenizer.encode_batch([*map(normalize, sources)])
            target_ids = tokenizer.encode_batch([*map(normalize, targets)], target=True)
            for source, target in zip(source_ids, target_ids, strict=True):
                distinct = sorted(set(source)), sorted(set(target))
                encoded.append(distinct)
                size = len(distinct[0]) * len(distinct[1])
                num_cells += size
                bar.update(size)
    return encoded


def _best(source_K: Indices, target_K: Indices, probability_K: Floats) -> tuple[Indices, Indices]:
    """Return the most probable entries of each source token, [N] each."""
    order_K = np.lexsort((-probability_K, source_K))
    source_K = source_K[order_K]
    target_K = target_K[order_K]
    # The rank of an entry is its distance to the first one of its source token.
    first_K = np.searchsorted(source_K, source_K)
    rank_K = np.arange(len(source_K)) - first_K
    is_best_K = rank_K < MAX_TRANSLATIONS
    return source_K[is_best_K], target_K[is_best_K]


def _frequent(encoded: Iterable[EncodedPair], vocab_size: int) -> Indices:
    """Return the target tokens that occur in the most sentences."""
    count_V = np.zeros(vocab_size, np.int64)
    for _, target in encoded:
        count_V[target] += 1
    most_frequent_C = np.argsort(-count_V, kind="stable")[:NUM_FREQUENT]
    return most_frequent_C[count_V[most_frequent_C] > 0]
