"""`nmt translate` and `nmt score`: output formats, shards, documents, the prompt and the Python
API."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from commandline import (
    CommandLine,
    finish,
    has_content,
    heed_interrupts,
    sentences,
    wait_until,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from stub_translations import texts, translated
from test_distributed import fork_torchrun

from nmt import Guard, Line, Translator, cli
from nmt.cli.options import search_spec
from nmt.cli.prompt import run_prompt
from nmt.core.errors import UsageError
from nmt.data.batching import collate
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.text import paragraphs, parse
from nmt.engines import native
from nmt.jobs.output import open_output
from nmt.models import discovery
from nmt.text import spans
from nmt.text.whitespace import separator
from nmt.translation import chunking

SOURCE = sentences(40)[0]


@pytest.fixture
def many(trained: CommandLine) -> CommandLine:
    # without a line feed after the last line
    (trained.directory / "many.en").write_text(
        "\n".join([*SOURCE, "", " the dog "]), encoding="utf-8"
    )
    return trained


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


# ---- output formats


def test_jsonl_output_has_scores_tokens_and_alignment(trained: CommandLine) -> None:
    sources = ["the small dog sees the tree.", "", "the bird"]
    done = trained(
        "translate", "--format", "jsonl", "--beam-size", "4", "--top-beams", "3", *sources
    )
    records = [json.loads(line) for line in done.out.split("\n")[:-1]]
    assert [record["source"] for record in records] == sources
    assert [len(record["translations"]) for record in records] == [3, 1, 3]
    plain = trained("translate", "--beam-size", "4", "--top-beams", "3", *sources).out.split("\n")[
        :-1
    ]
    assert [
        t["text"] for record in (records[0], records[2]) for t in record["translations"]
    ] == plain[:3] + plain[6:]
    for record in (records[0], records[2]):
        source = record["source"].split()
        for best in record["translations"]:
            assert sum(best["token_log_probs"]) == pytest.approx(best["log_prob"], abs=1e-4)
            assert len(best["tokens"]) == len(best["token_log_probs"])
            assert best["tokens"][-1] == "</s>"
            assert [target for _, target in best["alignment"]] == list(
                range(len(best["text"].split()))
            )
            assert all(0 <= word < len(source) for word, _ in best["alignment"])
            norm = (5 + len(best["tokens"])) / 6
            assert best["score"] == pytest.approx(best["log_prob"] / norm, abs=1e-4)
    assert records[1]["translations"] == [
        {
            "text": "",
            "score": 0.0,
            "log_prob": 0.0,
            "tokens": [],
            "token_log_probs": [],
            "alignment": [],
            "confidence": None,
            "warnings": [],
        }
    ]


def test_show_scores_prints_the_score_before_the_translation(trained: CommandLine) -> None:
    done = trained("translate", "--show-scores", "--top-beams", "2", "the dog")
    plain = trained("translate", "--top-beams", "2", "the dog")
    assert [line.split("\t")[1] for line in done.out.split("\n")[:-1]] == plain.out.split("\n")[:-1]
    assert float(done.out.split("\t")[0]) < 0


def test_score_equals_the_log_probability_of_translate(trained: CommandLine) -> None:
    output = trained("translate", "--format", "jsonl", *SOURCE[:6]).out.split("\n")[:-1]
    best = [json.loads(line)["translations"][0] for line in output]
    (trained.directory / "six.en").write_text("".join(f"{line}\n" for line in SOURCE[:6]))
    (trained.directory / "six.de").write_text("".join(f"{each['text']}\n" for each in best))
    done = trained("score", "--src", "six.en", "--tgt", "six.de", "--format", "jsonl")
    records = [json.loads(line) for line in done.out.split("\n")[:-1]]
    loaded = discovery.load(trained.directory / "runs/tiny")
    for record in records:
        batch = collate(
            [tuple(loaded.tokenizer.encode(record[side]) for side in ("source", "target"))]
        )
        hidden_ND = loaded.model(
            batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N
        )
        log_p_N = (
            loaded.model.logits(hidden_ND).log_softmax(-1).gather(1, batch.labels_N[:, None])[:, 0]
        )
        assert record["token_log_probs"] == pytest.approx(log_p_N.tolist(), abs=1e-4)
        assert record["log_prob"] == pytest.approx(log_p_N.sum().item(), abs=1e-4)
    totals = trained("score", "--src", "six.en", "--tgt", "six.de").out.split()
    assert [float(x) for x in totals] == pytest.approx(
        [record["log_prob"] for record in records], abs=1e-3
    )
    fields = best[0].keys() - {"text"} | {"source", "target"}
    for record in records:
        assert record.keys() == fields
        assert (
            record["score"] == record["log_prob"] == pytest.approx(sum(record["token_log_probs"]))
        )


def test_score_rejects_files_of_different_lengths(trained: CommandLine) -> None:
    (trained.directory / "two.en").write_text("a\nb\n")
    (trained.directory / "one.de").write_text("a\n")
    trained("score", "--src", "two.en", "--tgt", "one.de").assert_fails(
        1, "two.en has 2 lines and one.de has 1"
    )


def test_prefix_and_constraints_appear_in_the_translation(trained: CommandLine) -> None:
    done = trained.run("translate", "--prefix", "das Haus", "the dog", "the bird sees the boat.")
    assert all(line.startswith("das Haus") for line in done.out.split("\n")[:-1])
    done = trained.run(
        "translate",
        "--constraint",
        "grüne Kahn",
        "--constraint",
        "malt",
        "the dog",
        "the bird sees the boat.",
    )
    assert all("grüne Kahn" in line and "malt" in line for line in done.out.split("\n")[:-1])


def test_several_models_form_an_ensemble(nmt: CommandLine) -> None:
    steps = sorted((nmt.directory / "runs/tiny").glob("step-*"))
    assert len(steps) == 2
    one = nmt(
        "translate", "--format", "jsonl", "--model", steps[1], "--model", steps[1], *SOURCE[:5]
    )
    assert one.out == nmt("translate", "--format", "jsonl", "--model", steps[1], *SOURCE[:5]).out
    both = nmt.run(
        "translate", "--format", "jsonl", "--model", steps[0], "--model", steps[1], *SOURCE[:5]
    )
    assert both.out != one.out
    shutil.copytree(nmt.directory / "runs/tiny", nmt.directory / "runs/lower")
    config = nmt.directory / "runs/lower/config.yaml"
    config.write_text(
        config.read_text().replace("lowercase_all_caps: false", "lowercase_all_caps: true")
    )
    nmt("translate", "--model", "runs/tiny", "--model", "runs/lower", "hi").assert_fails(
        1, "runs/lower and runs/tiny differ in lowercase_all_caps"
    )
    nmt.train("runs/other", tokenizer__vocab_size="300")
    nmt("translate", "--model", "runs/tiny", "--model", "runs/other", "hi").assert_fails(
        1, "have different tokenizers", "hint"
    )


@pytest.mark.parametrize("precision", ["int8", "fp32"] if native.is_available() else ["fp32"])
def test_every_line_is_translated_in_every_precision(many: CommandLine, precision: str) -> None:
    done = many.run("translate", "--input", "many.en", "--precision", precision)
    assert len(done.out.split("\n")) == len(lines(many.directory / "many.en")) + 1


# ---- shards and resuming


SLOW_PATTERNS = [
    (r"(a+)+$", "a" * 40 + "b"),
    (r"(\w+\s?)*:", "many words " * 30),
    (r"(?:x|x)*y", "x" * 60),
    (r".*.*.*.*=", "no sign " * 400),
    (r"(?=(a+)+$)b", "a" * 40 + "b"),
    (r"(a*)*\d", "a" * 60),
]


@pytest.mark.parametrize(("pattern", "text"), SLOW_PATTERNS)
def test_a_slow_pattern_is_an_error(
    pattern: str, text: str, trained: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MAX_PATTERN_SECONDS", 0.1)
    previous = signal.getsignal(signal.SIGALRM)
    (trained.directory / "slow.txt").write_text(f"the dog\n{text}\n")
    (trained.directory / "slow.md").write_text(f"the dog\n\n{text}\n")
    # A fast pattern before and after it does not matter.
    options = (
        "--model",
        "runs/tiny",
        "--protect",
        "v[0-9]",
        "--protect",
        pattern,
        "--protect",
        "w[0-9]",
    )
    for arguments in ((text,), ("--input", "slow.txt"), ("slow.md", "--to", "de")):
        done = trained("translate", *options, *arguments)
        done.assert_fails(
            2, f"--protect {pattern!r} takes more than 0.1 seconds in one line", "hint: "
        )
    assert signal.getsignal(signal.SIGALRM) == previous
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@given(
    st.text("ab12 .:é", max_size=40),
    st.sampled_from([r"\w+", r"(?i)A\d*", r"\b1.", r"[^ ]+:", "é", "(a|b)+"]),
)
def test_the_time_limit_does_not_change_what_patterns_match(text: str, pattern: str) -> None:
    compiled = spans.compile_patterns([pattern])
    found = spans.find_spans(text, compiled)
    expected = {match.span() for match in re.finditer(pattern, text) if match[0]}
    assert {(span.start, span.end) for span in found if span.kind == "custom"} <= expected
    for start, end in expected:
        assert any(span.start < end and start < span.end for span in found)
    with ThreadPoolExecutor(1) as pool:  # which has no time limit
        assert pool.submit(spans.find_spans, text, compiled).result() == found


@pytest.mark.parametrize("count", [1, 3, 200])
def test_shards_add_up_to_the_output(many: CommandLine, count: int) -> None:
    output = many("translate", "--input", "many.en").out
    numbers = range(1, min(count, 5) + 1)  # only the first shards, if there are more than lines
    shards = [
        many("translate", "--input", "many.en", "--shard", f"{number}/{count}").out
        for number in numbers
    ]
    assert "".join(shards) == output if count < 5 else output.startswith("".join(shards))


@pytest.mark.slow
def test_a_killed_translation_can_be_resumed(
    many: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "CHUNK_SIZE", 100)
    text = many.directory / "long.en"
    text.write_text("".join(f"{line}\n" for line in SOURCE * 20), encoding="utf-8")
    command = ("translate", "--input", "long.en", "--no-guard", "--beam-size", "1", "--output")
    many(*command, "complete.de")
    # A fork, also on a machine with a GPU: it keeps the size of chunks.
    process = many.fork(*command, "killed.de", "--device", "cpu", main=lambda: cli.main())
    wait_until(process, lambda: has_content(many.directory / "killed.de"))
    process.kill()
    process.communicate()
    assert 0 < len(lines(many.directory / "killed.de")) < len(SOURCE) * 20
    done = many.run(*command, "killed.de", "--resume")
    assert "resuming killed.de after" in done.err
    assert (many.directory / "killed.de").read_bytes() == (
        many.directory / "complete.de"
    ).read_bytes()


@pytest.mark.parametrize("options", [[], ["--resume"]])
def test_an_output_that_another_process_writes_is_not_touched(
    many: CommandLine, options: list[str]
) -> None:
    pytest.importorskip("fcntl")
    output = many.directory / "busy.de"
    with open_output(output) as write_line:
        write_line("ein Hund")
        output.write_text("ein Hund\nein", encoding="utf-8")  # half of a line is on disk
        command = ["translate", "--input", "many.en", "--output", "busy.de", *options]
        many(*command).assert_fails(2, "another process writes busy.de")
        assert output.read_text() == "ein Hund\nein"


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--top-beams", "3"], ["--format", "jsonl"]])
def test_a_truncated_output_is_completed(many: CommandLine, options: list[str]) -> None:
    command = ["translate", "--input", "many.en", *options, "--output"]
    many(*command, "all.out")
    output = (many.directory / "all.out").read_bytes()
    for size in (0, 1, len(output) // 2, len(output) - 1, len(output)):
        (many.directory / "cut.out").write_bytes(output[:size])
        many.run(*command, "cut.out", "--resume")
        # The batch may change the last digits of a score.
        assert rounded((many.directory / "cut.out").read_bytes()) == rounded(output)


@pytest.mark.slow
def test_torchrun_processes_share_a_file(many: CommandLine) -> None:
    expected = many("translate", "--input", "many.en").out
    command = ("translate", "--input", "many.en", "--output", "joined.de")
    finish(fork_torchrun(many, *command)).check()
    assert (many.directory / "joined.de").read_text(encoding="utf-8") == expected
    assert [path.name for path in many.directory.glob("*joined.de*")] == ["joined.de"]


def rounded(text: bytes) -> str:
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", text.decode())


@pytest.mark.slow
def test_resume_joins_finished_shards(trained: CommandLine) -> None:
    (trained.directory / "two.en").write_text("the dog\nthe cat")
    for number, text in ((1, "eins\n"), (2, "zwei\n")):
        (trained.directory / f"two.de.{number}-of-2.done").write_text(text)
    ranks = [
        CommandLine(trained.directory, {"WORLD_SIZE": "2", "RANK": str(rank)}) for rank in (0, 1)
    ]
    command = ("translate", "--input", "two.en", "--output", "two.de")
    ranks[0](*command).assert_fails(
        2, "two.de is incomplete: some of its shards are missing", "--resume"
    )
    for rank in ranks:
        rank.run(*command, "--resume")
    assert (trained.directory / "two.de").read_text() == "eins\nzwei\n"
    assert [path.name for path in trained.directory.glob("*two.de*")] == ["two.de"]


@pytest.mark.slow
def test_resume_in_several_processes_completes_the_output_of_one(trained: CommandLine) -> None:
    (trained.directory / "four.en").write_text("the dog\nthe cat\nthe bird\nthe stone\n")
    command = ("translate", "--input", "four.en", "--output", "four.de")
    trained.run(*command)
    complete = (trained.directory / "four.de").read_text()
    ranks = [
        CommandLine(trained.directory, {"WORLD_SIZE": "2", "RANK": str(rank)}) for rank in (0, 1)
    ]
    # Of a killed process, and complete.
    for existing in (
        "".join(complete.splitlines(keepends=True)[:3]),
        complete,
    ):
        (trained.directory / "four.de").write_text(existing)
        assert [rank(*command, "--resume").code for rank in ranks] == [0, 0]
        assert (trained.directory / "four.de").read_text() == complete


@pytest.mark.slow
def test_more_processes_than_lines(trained: CommandLine) -> None:
    (trained.directory / "few.en").write_text("the dog\nthe cat")
    for rank in range(4):
        nmt = CommandLine(trained.directory, {"WORLD_SIZE": "4", "RANK": str(rank)})
        nmt.run("translate", "--input", "few.en", "--output", "few.de")
    assert (trained.directory / "few.de").read_text() == trained(
        "translate", "--input", "few.en"
    ).out


@pytest.mark.parametrize(
    "environment", [{}, {"RANK": "2"}, {"RANK": "x"}, {"WORLD_SIZE": "x", "RANK": "0"}]
)
def test_incomplete_variables_of_torchrun_are_an_error(
    environment: dict[str, str], trained: CommandLine
) -> None:
    nmt = CommandLine(trained.directory, {"WORLD_SIZE": "2"} | environment)
    nmt("translate", "-i", "text.en", "-o", "part.de").assert_fails(
        2, "torchrun did not start this process", "unset"
    )


def test_outputs_of_several_processes_are_text_files(trained: CommandLine) -> None:
    nmt = CommandLine(trained.directory, {"WORLD_SIZE": "2", "RANK": "0"})
    for output in ("-", "/dev/stdout"):
        nmt("translate", "-i", "text.en", "-o", output).assert_fails(
            2, "torchrun requires --output FILE"
        )
    nmt("translate", "-i", "text.en", "-o", "part.gz").assert_fails(
        2, "cannot write part.gz: the output is plain text"
    )


def test_empty_input_gives_an_empty_file(trained: CommandLine) -> None:
    (trained.directory / "empty.en").write_text("")
    (trained.directory / "stale.de").write_text("alt\n")
    for name in ("stale.de", "fresh.de"):
        trained.run("translate", "--input", "empty.en", "--output", name)
        assert (trained.directory / name).read_bytes() == b""


# ---- documents


DOCUMENT = """# the old tree

the small dog sees the
tree. the bird draws the boat.

- the dog
- the green bird sees
  the heavy stone.

    the quiet cat
the end
"""


def test_a_document_keeps_its_layout(trained: CommandLine) -> None:
    (trained.directory / "text.txt").write_text(DOCUMENT)
    done = trained.run("translate", "text.txt", "--output", "-")
    out = done.out.split("\n")
    assert out[0].startswith("# ")
    assert out[1] == ""
    assert done.out.count("\n\n") == DOCUMENT.count("\n\n")
    assert [line[:2] for line in out if line.startswith("-")] == ["- ", "- "]
    assert [line for line in out if line.startswith("    ")]
    piped = trained("translate", "--document", "txt", stdin=DOCUMENT.encode())
    assert piped.out == done.out


def test_a_sentence_may_continue_on_the_next_line(trained: CommandLine) -> None:
    text = "the small dog\nsees the tree.\n"
    done = trained("translate", "--document", "txt", stdin=text.encode())
    single_line = trained("translate", "the small dog sees the tree.")
    assert done.out.split() == single_line.out.split()
    assert max(map(len, done.out.split("\n"))) <= max(
        len("sees the tree."), *map(len, single_line.out.split())
    )


def test_paragraphs_add_up_to_the_document() -> None:
    document = list(paragraphs(DOCUMENT.split("\n")[:-1]))
    joined = []
    for paragraph in document:
        joined += [paragraph.marker + (paragraph.lines[0] if paragraph.lines else "")]
        joined += [paragraph.indent + line for line in paragraph.lines[1:]]
    assert "\n".join(joined) + "\n" == DOCUMENT
    assert [paragraph.text for paragraph in document if paragraph.text] == [
        "the old tree",
        "the small dog sees the tree. the bird draws the boat.",
        "the dog",
        "the green bird sees the heavy stone.",
        "the quiet cat the end",
    ]


@pytest.mark.parametrize("marker", ["a)", "(1)", "(a)", "iv)", "[ ]", "- [x]", "12."])
def test_markers_start_paragraphs(marker: str) -> None:
    first, second = paragraphs([f"{marker} the dog", f"{marker} the cat"])
    assert (first.marker, first.text, second.text) == (f"{marker} ", "the dog", "the cat")


def test_only_wrapped_lines_are_joined() -> None:
    fields = ["First name: Peter", "Last name: Miller", "City: London"]
    assert [each.text for each in paragraphs(fields)] == fields
    wrapped = [
        "This is a line of a paragraph that was wrapped, as",
        "English text often is. It ends here.",
        "Peter",
    ]
    assert [each.text for each in paragraphs(wrapped)] == [" ".join(wrapped[:2]), "Peter"]


def test_tabs_separate_columns() -> None:
    document = parse(b"- one\t two\nx\t\n", DocumentOptions("en", "de"))
    assert [block.text for block in document.blocks] == ["one", "two", "x"]
    assert document.render([RichText(each) for each in "abc"]) == b"- a\t b\nc\t\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "Fruit     Price  Town\nApples    3      Rome\n",
            ["Fruit", "Price", "Town", "Apples", "3", "Rome"],
        ),
        ("apple  red\npeach  pink\n", ["apple", "red", "peach", "pink"]),
        ("| red | a dog |\n|blue|a cat|\n│ x │ y │\n", ["red", "a dog", "blue", "a cat", "x", "y"]),
        (
            "  -h, --help   Show it.\n  -q  Be quiet.\n",
            ["-h, --help", "Show it.", "-q", "Be quiet."],
        ),
        ("It is red.  It is big.  Is it?", ["It is red.  It is big.  Is it?"]),
        ('He said "Go!"  Then he left.', ['He said "Go!"  Then he left.']),
        ("This is  a typing error.", ["This is  a typing error."]),
        (
            "Read {{ name | upper }} or `a | b  c` here",
            ["Read {{ name | upper }} or `a | b  c` here"],
        ),
        (
            "2023-01-02 03:04:05 INFO  It ran.\nMar  2 03:04:05 it ended\n",
            ["INFO", "It ran.", "it ended"],
        ),
        ("[2.1.2023 03:04:05.123Z] one dog\n", ["one dog"]),
    ],
)
def test_columns_are_separate_texts(source: str, expected: list[str]) -> None:
    document = parse(source.encode(), DocumentOptions("en", "de"))
    assert texts(document) == expected
    assert document.render(document.blocks) == source.encode()


@pytest.mark.parametrize(
    "start", ["-q", "--all=yes", "-x, --xx", "2023-01-02", "1.2.2023", "[03:04]", "03:04:05"]
)
def test_options_dates_and_times_start_paragraphs(start: str) -> None:
    lines = [
        "This is a line of text that is long enough to continue on the next",
        f"{start} shows it",
    ]
    assert [each.text for each in paragraphs(lines)] == lines
    assert len(list(paragraphs([lines[0], f"x{start} shows it"]))) == 1


def test_justified_text_is_one_paragraph() -> None:
    lines = [
        "The  small dog  sees the tree  in front of",
        "the house, and  the bird  in it  draws his",
        "red boat.",
    ]
    assert [each.text for each in paragraphs(lines)] == [" ".join(lines)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "Dog.", "- a cat", "two  x "]),
            st.sampled_from(["\n", "\r\n", "\r\r\n"]),
        )
    )
)
def test_line_ends_of_plain_text_stay(lines: list[tuple[str, str]]) -> None:
    source = "".join(line + end for line, end in lines)
    document = parse(source.encode(), DocumentOptions("en", "de"))
    assert document.render(document.blocks).decode() == source
    rendered = translated(document).decode()
    assert re.findall(r"\r*\n", rendered) == [end for _, end in lines]
    assert rendered.split() == source.upper().split()


def test_columns_start_at_the_same_places_if_there_is_space() -> None:
    document = parse(b"a dog     it    x\n| it  | dog |\n", DocumentOptions("en", "de"))
    translations = {"a dog": "Hund", "it": "es", "x": "sehr", "dog": "ein großer Hund"}
    rendered = document.render(
        [RichText(translations[block.text]) for block in document.blocks]
    ).decode()
    assert rendered == "Hund      es    sehr\n| es  | ein großer Hund |\n"


CELLS = st.text("abAB.,:5-|{}` ", min_size=1, max_size=12)
SEPARATORS = st.sampled_from(["  ", "   ", "\t", " | ", "|", "  |  ", " "])


@given(
    st.lists(st.lists(st.tuples(CELLS, SEPARATORS), min_size=1, max_size=4), min_size=1, max_size=4)
)
def test_no_column_is_lost(rows: list[list[tuple[str, str]]]) -> None:
    lines = ["".join(cell + separator for cell, separator in row) for row in rows]
    source = "\n".join(lines)
    document = parse(source.encode(), DocumentOptions("en", "de"))
    assert document.render(document.blocks).decode() == source
    assert translated(document).decode().upper().split() == source.upper().split()


# ---- text in another language


@pytest.mark.parametrize("num_lines", [1, 30])
def test_input_in_the_target_language_has_one_warning(trained: CommandLine, num_lines: int) -> None:
    source, target = (side[:num_lines] for side in sentences(30))
    warning = (
        "nmt: warning: the input seems to be in German, not in English; choose a model that"
        " translates into English"
    )
    for text, count in ((source, 0), (target, 1)):
        content = "".join(f"{line}\n" for line in text)
        for name, lines_of in (
            ("german.txt", content),
            ("german.md", content.replace("\n", "\n\n")),
        ):
            (trained.directory / name).write_text(lines_of, encoding="utf-8")
        for done in (
            trained.run("translate", "--model", "runs/tiny", *text),
            trained.run("translate", "--model", "runs/tiny", "--no-guard", stdin=content.encode()),
            trained.run("translate", "--model", "runs/tiny", "--input", "german.txt"),
            trained.run("translate", "--model", "runs/tiny", "german.md", "--force"),
        ):
            assert done.err.count("seems to be in") == done.err.count(warning) == count, done.err


def test_test_sets_and_corpora_with_swapped_sides_have_a_warning(nmt: CommandLine) -> None:
    source, target = sentences(60)
    write(nmt.directory / "swapped", target, source)
    arguments = ["evaluate", "--model", "runs/tiny", "--beam-size", "1", "--src"]
    assert "seem to be" not in nmt.run(*arguments, "text.en", "--ref", "text.de").err
    assert (
        "two sides of text.de seem to be swapped"
        in nmt.run(*arguments, "text.de", "--ref", "text.en").err
    )
    done = nmt.train(
        "runs/swapped", "[files(train='text'), files(train='swapped')]", train__steps="1"
    )
    assert done.err.count("seem to be") == 1
    assert "two sides of swapped/train seem to be swapped" in done.err


# ---- the prompt


@pytest.mark.slow
def test_a_terminal_gets_a_prompt(trained: CommandLine, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nmt", "translate"],
        cwd=trained.directory,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        preexec_fn=heed_interrupts,
        start_new_session=True,
        env=os.environ | {"NMT_RUNS": "runs", "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"},
    )
    os.close(terminal)
    translation = trained("translate", "the dog").out.strip()
    output = b""

    def wait_for(text: str, count: int = 1) -> None:
        nonlocal output
        deadline = time.monotonic() + 120
        while output.count(text.encode()) < count:
            assert time.monotonic() < deadline, output
            output += os.read(controller, 4096)

    wait_for("> ")
    os.write(controller, b"the dog\n")
    wait_for(translation)
    wait_for("> ", 2)
    os.write(controller, b"caf\xe9\n")  # not UTF-8
    wait_for("> ", 3)
    assert "the dog" in (tmp_path / "nmt/history").read_text()  # the terminal may be closed
    os.write(controller, b"\n\x04")
    assert process.wait(timeout=60) == 0
    os.close(controller)


def test_the_prompt_translates_each_line_of_a_pasted_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    typed = iter(["the dog\n\nthe cat\n", "a bird"])

    def read(prompt: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    run_prompt(lambda line: [line.upper(), "-"])
    assert capsys.readouterr().out.split("\n") == [
        *("THE DOG", "-", "THE CAT", "-", "A BIRD", "-"),
        *("", ""),
    ]


def test_the_prompt_keeps_a_history_across_sessions(tmp_path: Path) -> None:
    pytest.importorskip("readline")
    code = (
        "import readline, sys; from nmt.cli import prompt; save = prompt.load_history();"
        " readline.add_history(sys.argv[1]); save()"
    )
    for line in ("the dog", "the cat"):
        environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
        subprocess.run([sys.executable, "-c", code, line], env=environment, check=True)
    assert [line for line in lines(tmp_path / "nmt/history") if line.startswith("the")] == [
        "the dog",
        "the cat",
    ]


# ---- invalid options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("constrained", "greedy", None, 2, None), "constrained(top_beams=2)"),
        (("constrained", "greedy", None, 9, None), "constrained(top_beams=9, beam_size=9)"),
        (("diverse", "greedy", None, 5, None), "diverse(top_beams=5, beam_size=6)"),
        (("", "beam(beam_size=5)", None, 3, None), "beam(beam_size=5, top_beams=3)"),
        (("", "greedy", None, 6, 0.5), "beam(top_beams=6, length_penalty=0.5, beam_size=6)"),
    ],
)
def test_beam_size_is_at_least_top_beams(options: tuple[Any, ...], expected: str) -> None:
    assert search_spec(*options) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("hi --format yaml", "unknown format 'yaml'"),
        ("hi --engine ctranslate", "unknown engine 'ctranslate'"),
        ("hi --search diverse(groups=0) --top-beams 5", "groups must divide beam_size (4), got 0"),
        ("hi --search beam(groups=0) --top-beams 5", "search 'beam' has no option 'groups'"),
        ("hi --shard 1/2", "only a file can be sharded"),
        ("-i text.en --shard 3/2", "--shard must be I/N with I from 1 to N, got '3/2'"),
        ("-i text.en --shard 0/2", "--shard must be I/N"),
        ("-i text.en --shard two", "--shard must be I/N"),
        ("-i text.en --resume", "--resume requires --input and --output, or documents"),
        (
            f"hi --prefix {'a' * 2000}",
            "prefix and constraints are longer than the model was trained for",
        ),
        ("hi --constraint da --search greedy", "constraints need the constrained search"),
        ("hi --precision int4", "unknown precision 'int4'"),
    ],
)
def test_invalid_options_are_rejected(trained: CommandLine, arguments: str, message: str) -> None:
    trained("translate", *arguments.split()).assert_fails(2, message)


def test_ctranslate2_without_an_export_suggests_nmt_export(trained: CommandLine) -> None:
    done = trained("translate", "hi", "--engine", "ctranslate2", "--model", "runs/tiny")
    done.assert_fails(
        1, "there is no CTranslate2 model in runs/tiny", "hint: nmt export RUN --to ctranslate2"
    )


def test_resume_rejects_an_output_in_another_format(many: CommandLine) -> None:
    (many.directory / "some.en").write_text("the dog\nthe cat\n")
    (many.directory / "plain.de").write_text("der Hund\n")
    command = ["translate", "--input", "some.en", "--resume", "--output"]
    many(*command, "plain.de", "--format", "jsonl").assert_fails(
        2, "plain.de has a different output format"
    )
    many(*command, "plain.de", "--show-scores").assert_fails(
        2, "plain.de has a different output format"
    )
    (many.directory / "long.de").write_text("der Hund\n" * 3 + "incomplete")
    many(*command, "long.de").assert_fails(
        2, "long.de has 3 lines, more than the 2 lines to translate"
    )
    assert (many.directory / "long.de").read_text() == "der Hund\n" * 3 + "incomplete"
    assert (many.directory / "plain.de").read_text() == "der Hund\n"
    many.run(*command, "/dev/null")


@pytest.mark.slow
def test_a_redirected_file_is_not_truncated(trained: CommandLine) -> None:
    file = trained.directory / "redirected"
    file.write_text("the dog\n")
    with file.open("rb") as stdin:
        process = trained.fork("translate", "-o", "redirected", stdin=stdin)
        assert b"redirected would be overwritten" in process.communicate()[1]
    with file.open("ab") as stdout:
        finish(trained.fork("translate", "the dog", "-o", "/dev/stdout", stdout=stdout)).check()
    assert file.read_text().startswith("the dog\n")
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize("option", ["--prefix", "--constraint"])
def test_constraints_that_are_not_utf8_are_rejected(trained: CommandLine, option: str) -> None:
    trained("translate", "hi", option, os.fsdecode(b"\xff")).assert_fails(1, "not UTF-8 (0xff)")


# ---- the Python API


def test_invalid_arguments_raise_usage_errors(trained: CommandLine) -> None:
    translator = Translator.load(trained.directory / "runs/tiny")
    for call in (
        lambda: translator.translate("a dog"),
        lambda: translator.n_best("a dog"),
        lambda: Line("a dog", constraints="Hund"),
        lambda: Translator.load([]),
    ):
        with pytest.raises(UsageError):
            call()


@pytest.mark.slow
def test_python_api_equals_the_command_line(many: CommandLine) -> None:
    translator = Translator.load(many.directory / "runs/tiny")
    text = lines(many.directory / "many.en")
    assert (
        translator.translate(text)
        == many("translate", "--no-guard", "--input", "many.en").out.split("\n")[:-1]
    )
    assert (
        Guard(translator).translate(text)
        == many("translate", "--input", "many.en").out.split("\n")[:-1]
    )
    assert translator.translate(["the dog", ""]) == [translator.translate(["the dog"])[0], ""]
    assert [best[0].text for best in translator.n_best(text[:9])] == translator.translate(text[:9])


def test_threads_share_a_translator(many: CommandLine) -> None:
    translator = Translator.load(many.directory / "runs/tiny")
    text = lines(many.directory / "many.en")
    parts = [text[i : i + 4] for i in range(0, 40, 4)]
    expected = [translator.translate(part, "beam(beam_size=3)") for part in parts]
    with ThreadPoolExecutor(5) as pool:
        results = [*pool.map(lambda part: translator.translate(part, "beam(beam_size=3)"), parts)]
    assert results == expected


def test_each_line_has_its_own_constraints(trained: CommandLine) -> None:
    translator = Translator.load(trained.directory / "runs/tiny")
    lines: list[str | Line] = [
        Line("the dog", prefix="eine Katze"),
        "the dog",
        Line("the dog", constraints=("leise Vogel",)),
    ]
    prefixed, plain, constrained = translator.translate(lines, "constrained(beam_size=4)")
    assert prefixed.startswith("eine Katze")
    assert "leise Vogel" in constrained
    assert [plain] == translator.translate(["the dog"], "constrained(beam_size=4)")
    with pytest.raises(UsageError, match="constrained"):
        translator.translate(lines, "beam(beam_size=4)")


def test_segments_are_joined_with_the_white_space_of_the_line(trained: CommandLine) -> None:
    translator = Translator.load(trained.directory / "runs/tiny")
    sentence = "the small dog sees the tree."
    translation = translator.translate([sentence])[0]
    translator.segmenter.max_source_length = len(translator.tokenizer.encode(sentence))
    joined = translator.translate([f"  {sentence}   {sentence}\t{sentence} "])[0]
    assert joined == f"  {translation}   {translation}\t{translation} "
    best, *_ = next(translator.n_best([f"{sentence} {sentence}"]))
    count = len(translation.split())
    words = [word for word, _ in best.alignment]
    assert words[count:] == [word + len(sentence.split()) for word in words[:count]]
    assert [target for _, target in best.alignment] == list(range(2 * count))


def test_an_empty_translation_can_be_scored(trained: CommandLine) -> None:
    (scored,) = Translator.load(trained.directory / "runs/tiny").score([("a dog", "")])
    assert scored.score == scored.log_prob < -0.01
    assert scored.tokens == ("</s>",)


def test_separator_between_segments() -> None:
    assert separator("今日は晴れ。明日は雨。", 6, 6) == " "
    assert separator("one.  two", 4, 6) == "  "
    assert separator("one.\u2028two", 4, 5) == " "
    assert separator("endless", 3, 3) == ""
