"""`nmt translate` and `nmt score` as people use them: forms of output, parts, documents, a prompt, Python."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from commandline import CommandLine, heed_interrupts, sentences

from nmt import Line, Translator
from nmt.cli.options import search_spec
from nmt.data.batching import collate
from nmt.errors import UsageError
from nmt.inference.paragraphs import paragraphs
from nmt.inference.whitespace import gap
from nmt.runs import discovery

SOURCE = sentences(120)[0]


@pytest.fixture
def many(trained: CommandLine) -> CommandLine:
    # the last line lacks its end
    (trained.folder / "many.en").write_text("\n".join([*SOURCE, "", " the dog "]), encoding="utf-8")
    return trained


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


# ---- what is written


def test_a_record_tells_all_about_a_translation(trained: CommandLine) -> None:
    asked = ["the small dog sees the tree.", "", "the bird"]
    done = trained("translate", "--format", "jsonl", "--beam-size", "4", "--top-beams", "3", *asked)
    records = [json.loads(line) for line in done.out.split("\n")[:-1]]
    assert [record["source"] for record in records] == asked
    assert [len(record["translations"]) for record in records] == [3, 1, 3]
    plain = trained("translate", "--beam-size", "4", "--top-beams", "3", *asked).out.split("\n")[:-1]
    assert [t["text"] for record in (records[0], records[2]) for t in record["translations"]] == plain[:3] + plain[6:]
    for record in (records[0], records[2]):
        source = record["source"].split()
        for best in record["translations"]:
            assert sum(best["token_log_probs"]) == pytest.approx(best["log_prob"], abs=1e-4)
            assert len(best["tokens"]) == len(best["token_log_probs"])
            assert best["tokens"][-1] == "</s>"
            assert [target for _, target in best["alignment"]] == list(range(len(best["text"].split())))
            assert all(0 <= word < len(source) for word, _ in best["alignment"])
            norm = (5 + len(best["tokens"])) / 6
            assert best["score"] == pytest.approx(best["log_prob"] / norm, abs=1e-4)
    assert records[1]["translations"] == [
        {"text": "", "score": 0.0, "log_prob": 0.0, "tokens": [], "token_log_probs": [], "alignment": []}
    ]


def test_scores_stand_before_translations(trained: CommandLine) -> None:
    done = trained("translate", "--show-scores", "--top-beams", "2", "the dog")
    plain = trained("translate", "--top-beams", "2", "the dog")
    assert [line.split("\t")[1] for line in done.out.split("\n")[:-1]] == plain.out.split("\n")[:-1]
    assert float(done.out.split("\t")[0]) < 0


def test_given_translations_score_as_translating_says(trained: CommandLine) -> None:
    found = trained("translate", "--format", "jsonl", *SOURCE[:6]).out.split("\n")[:-1]
    best = [json.loads(line)["translations"][0] for line in found]
    (trained.folder / "six.en").write_text("".join(f"{line}\n" for line in SOURCE[:6]))
    (trained.folder / "six.de").write_text("".join(f"{each['text']}\n" for each in best))
    done = trained("score", "--src", "six.en", "--tgt", "six.de", "--format", "jsonl")
    records = [json.loads(line) for line in done.out.split("\n")[:-1]]
    loaded = discovery.load(trained.folder / "runs/tiny")
    for record in records:
        batch = collate([tuple(loaded.tokenizer.encode(record[side]) for side in ("source", "target"))])  # type: ignore[list-item]
        hidden_ND = loaded.model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
        log_p_N = loaded.model.project(hidden_ND).log_softmax(-1).gather(1, batch.labels_N[:, None])[:, 0]
        assert record["token_log_probs"] == pytest.approx(log_p_N.tolist(), abs=1e-4)
        assert record["log_prob"] == pytest.approx(log_p_N.sum().item(), abs=1e-4)
    whole = trained("score", "--src", "six.en", "--tgt", "six.de").out.split()
    assert [float(x) for x in whole] == pytest.approx([record["log_prob"] for record in records], abs=1e-3)
    mean = trained("score", "--src", "six.en", "--tgt", "six.de", "--per-token").out.split()
    assert [float(x) for x in mean] == pytest.approx(
        [record["log_prob"] / len(record["tokens"]) for record in records], abs=1e-3
    )


def test_what_is_no_translation_is_less_probable(trained: CommandLine) -> None:
    (trained.folder / "good.en").write_text("".join(f"{line}\n" for line in SOURCE[:40]))
    right = sentences(120)[1][:40]
    for name, text in (("right.de", right), ("turned.de", right[::-1])):
        (trained.folder / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    means = [
        sum(map(float, trained("score", "--src", "good.en", "--tgt", name).out.split()))
        for name in ("right.de", "turned.de")
    ]
    assert means[0] > means[1]


def test_pairs_of_unequal_length_are_not_scored(trained: CommandLine) -> None:
    (trained.folder / "two.en").write_text("a\nb\n")
    (trained.folder / "one.de").write_text("a\n")
    done = trained("score", "--src", "two.en", "--tgt", "one.de")
    assert done.code == 1
    assert len(done.errors) == 1


def test_a_translation_begins_and_holds_what_it_must(trained: CommandLine) -> None:
    done = trained("translate", "--prefix", "das Haus", "the dog", "the bird sees the boat.")
    assert done.code == 0, done.err
    assert all(line.startswith("das Haus") for line in done.out.split("\n")[:-1])
    done = trained(
        "translate", "--constraint", "grüne Kahn", "--constraint", "malt", "the dog", "the bird sees the boat."
    )
    assert done.code == 0, done.err
    assert all("grüne Kahn" in line and "malt" in line for line in done.out.split("\n")[:-1])


def test_several_checkpoints_translate_together(nmt: CommandLine) -> None:
    steps = sorted((nmt.folder / "runs/tiny").glob("step-*"))
    assert len(steps) == 2
    one = nmt("translate", "--format", "jsonl", "--model", steps[1], "--model", steps[1], *SOURCE[:5])
    assert one.out == nmt("translate", "--format", "jsonl", "--model", steps[1], *SOURCE[:5]).out
    both = nmt("translate", "--format", "jsonl", "--model", steps[0], "--model", steps[1], *SOURCE[:5])
    assert both.code == 0, both.err
    assert both.out != one.out
    assert nmt.train("runs/other", tokenizer__vocab_size="300").code == 0
    nmt("translate", "--model", "runs/tiny", "--model", "runs/other", "hi").refuses(
        1, "have different tokenizers", "hint"
    )


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_other_precisions_translate(many: CommandLine, precision: str) -> None:
    done = many("translate", "--input", "many.en", "--precision", precision)
    assert done.code == 0, done.err
    assert len(done.out.split("\n")) == len(lines(many.folder / "many.en")) + 1


# ---- parts of a corpus


@pytest.mark.parametrize("count", [1, 3, 200])
def test_parts_one_after_the_other_are_the_whole(many: CommandLine, count: int) -> None:
    whole = many("translate", "--input", "many.en").out
    numbers = range(1, min(count, 5) + 1)  # of more parts than lines, the first few
    parts = [many("translate", "--input", "many.en", "--shard", f"{number}/{count}").out for number in numbers]
    assert "".join(parts) == whole if count < 5 else whole.startswith("".join(parts))


@pytest.mark.slow
def test_a_killed_translation_goes_on_where_it_stopped(many: CommandLine) -> None:
    text = many.folder / "long.en"
    text.write_text("".join(f"{line}\n" for line in SOURCE * 60), encoding="utf-8")
    many("translate", "--input", "long.en", "--output", "whole.de")
    process = many.start("translate", "--input", "long.en", "--output", "killed.de")
    deadline = time.monotonic() + 120
    while not (many.folder / "killed.de").exists() or not (many.folder / "killed.de").stat().st_size:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert 0 < len(lines(many.folder / "killed.de")) < len(SOURCE) * 60
    done = many("translate", "--input", "long.en", "--output", "killed.de", "--resume")
    assert done.code == 0, done.err
    assert "resuming" in done.err
    assert (many.folder / "killed.de").read_bytes() == (many.folder / "whole.de").read_bytes()


@pytest.mark.parametrize("options", [[], ["--top-beams", "3"], ["--format", "jsonl"]])
def test_a_cut_output_is_completed(many: CommandLine, options: list[str]) -> None:
    command = ["translate", "--input", "many.en", *options, "--output"]
    many(*command, "all.out")
    whole = (many.folder / "all.out").read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
        (many.folder / "cut.out").write_bytes(whole[:size])
        assert many(*command, "cut.out", "--resume").code == 0
        # What is translated beside a sentence may change the last digits of its scores.
        assert rounded((many.folder / "cut.out").read_bytes()) == rounded(whole)


@pytest.mark.slow
def test_processes_of_torchrun_translate_a_file_together(many: CommandLine) -> None:
    alone = many("translate", "--input", "many.en").out
    environment = os.environ | {"NMT_RUNS": "runs", "OMP_NUM_THREADS": "1"}
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
        "-m",
        "nmt",
        "--",
    ]
    command = [*torchrun, "translate", "--input", "many.en", "--output", "together.de"]
    for extra in ([], ["--resume"]):
        done = subprocess.run([*command, *extra], cwd=many.folder, env=environment, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()
        assert (many.folder / "together.de").read_text(encoding="utf-8") == alone
        assert [path.name for path in many.folder.glob("*together.de*")] == ["together.de"]


def rounded(text: bytes) -> str:
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", text.decode())


@pytest.mark.slow
def test_parts_that_were_never_joined_are_joined(trained: CommandLine) -> None:
    (trained.folder / "two.en").write_text("the dog\nthe cat")
    for number, text in ((1, "eins\n"), (2, "zwei\n")):
        (trained.folder / f"two.de.{number}-of-2.done").write_text(text)
    ranks = [CommandLine(trained.folder, {"WORLD_SIZE": "2", "RANK": str(rank)}) for rank in (0, 1)]
    command = ("translate", "--input", "two.en", "--output", "two.de")
    ranks[0].process(*command).refuses(2, "two.de is incomplete: some of its processes did not finish", "--resume")
    for rank in ranks:
        assert rank.process(*command, "--resume").code == 0
    assert (trained.folder / "two.de").read_text() == "eins\nzwei\n"
    assert [path.name for path in trained.folder.glob("*two.de*")] == ["two.de"]


@pytest.mark.slow
def test_more_processes_than_lines(trained: CommandLine) -> None:
    (trained.folder / "few.en").write_text("the dog\nthe cat")
    for rank in range(4):
        nmt = CommandLine(trained.folder, {"WORLD_SIZE": "4", "RANK": str(rank)})
        assert nmt.process("translate", "--input", "few.en", "--output", "few.de").code == 0
    assert (trained.folder / "few.de").read_text() == trained("translate", "--input", "few.en").out


def test_nothing_gives_an_empty_file(trained: CommandLine) -> None:
    (trained.folder / "empty.en").write_text("")
    (trained.folder / "stale.de").write_text("alt\n")
    for name in ("stale.de", "fresh.de"):
        assert trained("translate", "--input", "empty.en", "--output", name).code == 0
        assert (trained.folder / name).read_bytes() == b""


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
    (trained.folder / "text.md").write_text(DOCUMENT)
    done = trained("translate", "--document", "--input", "text.md")
    assert done.code == 0, done.err
    out = done.out.split("\n")
    assert out[0].startswith("# ")
    assert out[1] == ""
    assert done.out.count("\n\n") == DOCUMENT.count("\n\n")
    assert [line[:2] for line in out if line.startswith("-")] == ["- ", "- "]
    assert [line for line in out if line.startswith("    ")]
    piped = trained("translate", "--document", stdin=DOCUMENT.encode())
    assert piped.out == done.out


def test_sentences_that_run_over_lines_are_translated_whole(trained: CommandLine) -> None:
    text = "the small dog\nsees the tree.\n"
    done = trained("translate", "--document", stdin=text.encode())
    alone = trained("translate", "the small dog sees the tree.")
    assert done.out.split() == alone.out.split()
    assert max(map(len, done.out.split("\n"))) <= max(len("sees the tree."), *map(len, alone.out.split()))


def test_paragraphs_joined_again_are_the_document() -> None:
    found = list(paragraphs(DOCUMENT.split("\n")[:-1]))
    again = []
    for paragraph in found:
        again += [paragraph.mark + (paragraph.lines[0] if paragraph.lines else "")]
        again += [paragraph.indent + line for line in paragraph.lines[1:]]
    assert "\n".join(again) + "\n" == DOCUMENT
    assert [p.text for p in found if p.text] == [
        "the old tree", "the small dog sees the tree. the bird draws the boat.", "the dog",
        "the green bird sees the heavy stone.", "the quiet cat the end",
    ]  # fmt: skip


# ---- a person at a terminal


@pytest.mark.slow
def test_a_person_is_asked_for_sentences(trained: CommandLine, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nmt", "translate"], cwd=trained.folder, stdin=theirs, stdout=theirs, stderr=theirs,
        env=os.environ | {"NMT_RUNS": "runs", "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"},
        preexec_fn=heed_interrupts, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    wanted = trained("translate", "the dog").out.strip()
    seen = b""

    def until(text: str, times: int = 1) -> None:
        nonlocal seen
        deadline = time.monotonic() + 120
        while seen.count(text.encode()) < times:
            assert time.monotonic() < deadline, seen
            seen += os.read(ours, 4096)

    until("> ")
    os.write(ours, b"the dog\n")
    until(wanted)
    until("> ", 2)
    os.write(ours, b"\n\x04")
    assert process.wait(timeout=60) == 0
    os.close(ours)
    assert "the dog" in (tmp_path / "nmt/history").read_text()


def test_lines_of_all_sessions_are_remembered(tmp_path: Path) -> None:
    pytest.importorskip("readline")
    typed = (
        "import readline, sys; from nmt.cli import prompt; prompt._remember_lines(); readline.add_history(sys.argv[1])"
    )
    for line in ("the dog", "the cat"):
        environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
        subprocess.run([sys.executable, "-c", typed, line], env=environment, check=True)
    assert [line for line in lines(tmp_path / "nmt/history") if line.startswith("the")] == ["the dog", "the cat"]


# ---- mistakes


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("constrained", "greedy", None, 2, None), "constrained(top_beams=2)"),
        (("constrained", "greedy", None, 9, None), "constrained(top_beams=9, beam_size=9)"),
        (("diverse", "greedy", None, 5, None), "diverse(top_beams=5, beam_size=6)"),
        (("", "beam(beam_size=5)", None, 3, None), "beam(beam_size=5, top_beams=3)"),
        (("", "greedy", None, 6, 0.5), "beam(top_beams=6, length_penalty=0.5, beam_size=6)"),
    ],
)
def test_beams_suffice_for_the_translations_asked_for(options: tuple[Any, ...], wanted: str) -> None:
    assert search_spec(*options) == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("hi --format yaml", "unknown format 'yaml'"),
        ("hi --engine ctranslate", "unknown engine 'ctranslate'"),
        ("hi --shard 1/2", "only a file can be sharded"),
        ("-i text.en --shard 3/2", "--shard must be I/N with I from 1 to N, got '3/2'"),
        ("-i text.en --shard 0/2", "--shard must be I/N"),
        ("-i text.en --shard two", "--shard must be I/N"),
        ("-i text.en --resume", "--resume requires --input and --output"),
        ("-i text.en --document --format jsonl", "--document does not support --format"),
        ("-i text.en --document --top-beams 2", "--document does not support --top-beams"),
        (f"hi --prefix {'a' * 2000}", "prefix and constraints are longer than the model was trained for"),
        ("hi --search sample(temperature=1e-300)", "temperature must be between"),
        ("hi --constraint da --search greedy", "constraints need the search 'constrained'"),
        ("hi --search sample(top_p=2.0)", "top_p must be between"),
        ("hi --search sample --beam-size 4", "is not a beam search"),
        ("hi --precision int4", "unknown precision 'int4'"),
    ],
)
def test_mistakes_are_named(trained: CommandLine, arguments: str, message: str) -> None:
    trained("translate", *arguments.split()).refuses(2, message)


def test_an_engine_without_its_model_says_what_makes_one(trained: CommandLine) -> None:
    done = trained("translate", "hi", "--engine", "ctranslate2", "--model", "runs/tiny")
    done.refuses(1, "there is no CTranslate2 model in runs/tiny", "hint: nmt export RUN --to ctranslate2")


def test_a_file_of_another_command_is_not_gone_on_with(many: CommandLine) -> None:
    (many.folder / "some.en").write_text("the dog\nthe cat\n")
    (many.folder / "plain.de").write_text("der Hund\n")
    command = ["translate", "--input", "some.en", "--resume", "--output"]
    many(*command, "plain.de", "--format", "jsonl").refuses(2, "plain.de has a different output format")
    many(*command, "plain.de", "--show-scores").refuses(2, "plain.de has a different output format")
    (many.folder / "long.de").write_text("der Hund\n" * 3)
    many(*command, "long.de").refuses(2, "long.de has 3 lines, more than the 2 lines to translate")
    assert (many.folder / "plain.de").read_text() == "der Hund\n"
    assert many(*command, "/dev/null").code == 0


@pytest.mark.parametrize("option", ["--prefix", "--constraint"])
def test_wishes_that_are_not_utf8_are_refused(trained: CommandLine, option: str) -> None:
    trained("translate", "hi", option, os.fsdecode(b"\xff")).refuses(1, "not UTF-8 (0xff)")


# ---- from Python


def test_slips_in_python_are_named(trained: CommandLine) -> None:
    translator = Translator.load(trained.folder / "runs/tiny")
    for slip in (
        lambda: translator.translate("a dog"), lambda: translator.n_best("a dog"),
        lambda: Line("a dog", constraints="Hund"), lambda: Translator.load([]),  # type: ignore[arg-type]
    ):  # fmt: skip
        with pytest.raises(UsageError):
            slip()


def test_python_gives_what_the_command_gives(many: CommandLine) -> None:
    translator = Translator.load(many.folder / "runs/tiny")
    text = lines(many.folder / "many.en")
    assert translator.translate(text) == many("translate", "--input", "many.en").out.split("\n")[:-1]
    assert translator.translate(["the dog", ""]) == [translator.translate(["the dog"])[0], ""]
    assert [best[0].text for best in translator.n_best(text[:9])] == translator.translate(text[:9])


def test_threads_share_a_translator(many: CommandLine) -> None:
    translator = Translator.load(many.folder / "runs/tiny")
    text = lines(many.folder / "many.en")
    wanted = [translator.translate(text[i : i + 9], "beam(beam_size=3)") for i in range(0, 90, 9)]
    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(lambda i: translator.translate(text[i : i + 9], "beam(beam_size=3)"), range(0, 90, 9)))
    assert found == wanted


def test_each_line_may_have_wishes_of_its_own(trained: CommandLine) -> None:
    translator = Translator.load(trained.folder / "runs/tiny")
    wishes = [Line("the dog", prefix="eine Katze"), "the dog", Line("the dog", constraints=("leise Vogel",))]
    first, plain, held = translator.translate(wishes, "constrained(beam_size=4)")
    assert first.startswith("eine Katze")
    assert "leise Vogel" in held
    assert [plain] == translator.translate(["the dog"], "constrained(beam_size=4)")
    with pytest.raises(UsageError, match="constrained"):
        translator.translate(wishes, "beam(beam_size=4)")


def test_a_long_line_is_joined_with_its_own_white_space(trained: CommandLine) -> None:
    translator = Translator.load(trained.folder / "runs/tiny")
    sentence = "the small dog sees the tree."
    alone = translator.translate([sentence])[0]
    translator.max_source = len(translator.tokenizer.encode(sentence))
    joined = translator.translate([f"  {sentence}   {sentence}\t{sentence} "])[0]
    assert joined == f"  {alone}   {alone}\t{alone} "
    (best, *_) = next(translator.n_best([f"{sentence} {sentence}"]))
    count = len(alone.split())
    words = [word for word, _ in best.alignment]
    assert words[count:] == [word + len(sentence.split()) for word in words[:count]]
    assert [target for _, target in best.alignment] == list(range(2 * count))


def test_no_translation_is_scored_too(trained: CommandLine) -> None:
    (scored,) = Translator.load(trained.folder / "runs/tiny").score([("a dog", "")])
    assert scored.score == scored.log_prob < -0.01
    assert scored.tokens == ("</s>",)


def test_sentences_without_white_space_between_them_get_some() -> None:
    assert gap("今日は晴れ。明日は雨。", 6, 6) == " "
    assert gap("one.  two", 4, 6) == "  "
    assert gap("one.\u2028two", 4, 5) == " "
    assert gap("endless", 3, 3) == ""


def test_the_run_of_a_translator_may_be_anywhere(trained: CommandLine, tmp_path: Path) -> None:
    shutil.copytree(trained.folder / "runs/tiny", tmp_path / "mein Lauf")
    assert Translator.load(str(tmp_path / "mein Lauf")).translate(["the dog"])
