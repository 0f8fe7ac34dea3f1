"""Lexical shortlists: their files, how they are learned, and searches that use them."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commandline import CommandLine, sentences

from nmt.core.config import TokenizerConfig
from nmt.core.errors import CheckpointError
from nmt.jobs.shortlists import NUM_FREQUENT, learn_shortlist
from nmt.search import shortlist
from nmt.search.shortlist import FILE, MULTIPLE, Shortlist
from nmt.text.tokenizer import EOS, train
from nmt.text.tokenizers import load_tokenizer

VOCABULARY = 40
SENTENCES = sentences(2)
SHORTLIST = Shortlist.of(
    np.array([5, 5, 7, EOS]), np.array([20, 9, 30, 12]), VOCABULARY, 4, max_translations=2
)


def test_candidates_are_frequent_own_required_and_translated_tokens() -> None:
    candidates = SHORTLIST.candidates([5, 6, EOS], [33])
    expected = {0, 1, 2, 3, 5, 6, 9, 12, 20, 33}
    filled = expected | {4, 7, 8, 10, 11, 13}  # up to a multiple of 8
    assert len(candidates) % MULTIPLE == 0
    assert candidates.tolist() == sorted(filled)


def test_files_are_read_as_they_were_written() -> None:
    read = Shortlist.read(SHORTLIST.write(), VOCABULARY, VOCABULARY)
    for source in ([5], [7, EOS], [39]):
        np.testing.assert_array_equal(read.candidates(source), SHORTLIST.candidates(source))


def test_damaged_files_and_other_vocabularies_are_errors() -> None:
    content = SHORTLIST.write()
    for length in (0, 8, 47, len(content) - 4):
        with pytest.raises(ValueError, match="truncated"):
            Shortlist.read(content[:length], VOCABULARY, VOCABULARY)
    for position in range(16, len(content) // 8 * 8, 8):
        changed = bytearray(content)
        changed[position] ^= 1
        with pytest.raises(ValueError, match=r"truncated|more than|another vocabulary|checksum"):
            Shortlist.read(bytes(changed), VOCABULARY, VOCABULARY)
    with pytest.raises(ValueError, match="not a binary shortlist"):
        Shortlist.read(struct.pack("<Q", 1) + content[8:], VOCABULARY, VOCABULARY)
    with pytest.raises(ValueError, match="more than its translations"):
        Shortlist.read(content + bytes(4), VOCABULARY, VOCABULARY)
    for sizes in ((VOCABULARY - 1, VOCABULARY), (VOCABULARY, 25)):
        with pytest.raises(ValueError, match="another vocabulary"):
            Shortlist.read(content, *sizes)
    for position, value in ((0, 1), (9, 99), (-1, 1)):  # of the first, one inside, the last
        changed_ends = SHORTLIST.starts_V1.copy()
        changed_ends[position] = value
        disordered = SHORTLIST._replace(starts_V1=changed_ends).write()
        with pytest.raises(ValueError, match="out of order"):
            Shortlist.read(disordered, VOCABULARY, VOCABULARY)
    frequent = SHORTLIST._replace(num_frequent=VOCABULARY + 1).write()
    with pytest.raises(ValueError, match="another vocabulary"):
        Shortlist.read(frequent, VOCABULARY, VOCABULARY)


def test_runs_have_a_fast_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer: Any = range(VOCABULARY)  # only its size matters
    path = SHORTLIST.save(tmp_path)
    monkeypatch.setattr(shortlist, "_checksum", lambda content: 0)
    found = Shortlist.find(tmp_path, tokenizer)
    assert found is not None
    np.testing.assert_array_equal(found.candidates([5]), SHORTLIST.candidates([5]))
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(CheckpointError, match="its checksum is wrong"):
        Shortlist.find(tmp_path, tokenizer)


def test_ids_of_another_vocabulary() -> None:
    """The ids there are those here plus 3, in reverse order."""
    rows = np.append([-1, -1, -1], np.arange(VOCABULARY)[::-1])
    converted = SHORTLIST.with_ids(rows, rows)

    def new_id(old_id: int) -> int:
        return VOCABULARY + 2 - old_id

    first, end = converted.starts_V1[new_id(5) :][:2].tolist()
    assert set(converted.translations_N[first:end].tolist()) == {new_id(20), new_id(9)}
    assert converted.num_frequent == new_id(0) + 1


WORDS = {"dog": "hund", "cat": "katze", "house": "haus", "tree": "baum", "red": "rot"}


def test_translations_are_learned() -> None:
    pairs = []
    for words in itertools.permutations(WORDS, 3):
        pairs.append((" ".join(words), " ".join(WORDS[word] for word in words[::-1])))
    lines = [line for pair in pairs for line in pair]
    tokenizer = train(lines, TokenizerConfig(model_type="bpe", vocab_size=340))
    learned = learn_shortlist(pairs, tokenizer)
    best = {}
    for source, target in WORDS.items():
        (source_id,) = tokenizer.encode(source)
        best[source_id] = tokenizer.encode(target)
        candidates = set(learned.candidates([source_id]).tolist())
        assert candidates.issuperset(best[source_id])
    first, end = learned.starts_V1[EOS : EOS + 2].tolist()
    frequent = learned.translations_N[first:end].tolist()
    assert len(frequent) <= NUM_FREQUENT
    assert set(itertools.chain.from_iterable(best.values())) <= set(frequent)


@pytest.mark.slow
def test_a_model_translates_with_its_shortlist(trained: CommandLine) -> None:
    text = SENTENCES[0][0]
    full = trained.run("translate", "--search", "greedy", text).out
    path = trained.directory / trained.run("tokenizer", "shortlist").out.strip()
    assert path.name == FILE
    assert trained.run("translate", text).out
    learned = Shortlist.find(path.parent, load_tokenizer(path.with_name("spm.model")))
    assert learned is not None
    # Without translations, only the tokens of the source can appear.
    nothing = np.zeros(0, np.int64)
    empty = Shortlist.of(nothing, nothing, learned.vocab_size, EOS + 1, 1)
    path.write_bytes(empty.write())
    assert trained.run("translate", "--search", "greedy", text).out != full
    unrestricted = trained.run("translate", "--search", "greedy(shortlist=False)", text).out
    assert unrestricted == full
    path.write_bytes(b"damaged")
    trained("translate", text).assert_fails(1, FILE, "tokenizer shortlist")
