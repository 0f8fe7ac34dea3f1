"""The pretrained models: size, common sentences, and their use in all commands."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from commandline import CommandLine, write

from nmt import Translator
from nmt.data.pairs import read_pairs
from nmt.data.sources.holdout import sentence_key
from nmt.models import discovery
from nmt.runs import pretrained

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
MEGABYTES = 22
MODELS = ("en-de", "de-en")
SENTENCES = {
    "en-de": {
        "im thirsty": "Ich habe Durst.",
        "I'm thirsty.": "Ich habe Durst.",
        "i love you": "Ich liebe dich.",
        "I LOVE YOU": "Ich liebe dich.",
        "WHERE IS THE STATION?": "Wo ist der Bahnhof?",
        "Good morning!": "Guten Morgen!",
        "are we done": "Sind wir fertig?",
        "Thank you.": "Danke.",
        "hi": "Hallo!",
        "how are you": "Wie geht es dir?",
        "merry christmas": "Frohe Weihnachten!",
        "good luck": "Viel Glück!",
    },
    "de-en": {
        "Ich habe Durst.": "I'm thirsty.",
        "ich habe durst": "I'm thirsty.",
        "wo ist der bahnhof": "Where is the station?",
        "Ich liebe dich.": "I love you.",
        "Guten Morgen!": "Good morning!",
        "Danke schön.": "Thank you very much.",
        "tschüss": "Bye!",
        "wie heißt du": "What's your name?",
        "gute nacht": "Good night!",
    },
}


@pytest.mark.parametrize("name", pretrained.DIRECTIONS)
def test_model_is_complete_and_small_and_has_a_card(name: str) -> None:
    directory = pretrained.DIRECTORY / name
    loaded = discovery.load(Path(name))
    assert (loaded.config.data.src, loaded.config.data.tgt) == pretrained.DIRECTIONS[name]
    assert sum(path.stat().st_size for path in directory.rglob("*")) < MEGABYTES * 2**20
    card = (directory / "README.md").read_text()
    for text in (
        "tatoeba.org",
        "CC BY 2.0 FR",
        "manythings.org",
        "Europarl",
        "Wikipedia",
        "scripts/train_general.sh",
        "BLEU",
    ):
        assert text in card
    metadata = "".join(
        path.read_text()
        for path in directory.rglob("*.*")
        if path.suffix in (".md", ".json", ".yaml")
    )
    assert not re.search(r"/(work|tmp|home|root|Users)/", metadata)


@pytest.mark.parametrize("name", pretrained.DIRECTIONS)
def test_common_sentences(name: str) -> None:
    sentences = SENTENCES[name]
    assert (
        dict(zip(sentences, Translator.load(name).translate(sentences), strict=True)) == sentences
    )


def test_lines_with_elements_are_translated_as_in_documents(bare: CommandLine) -> None:
    lines = ["I am <b>tired</b>.", "<p>I am hungry.</p>", "5 < 6 and 7 > 3", "I am tired."]
    translated = bare.run("translate", "--model", "en-de", *lines).out.splitlines()
    assert translated[0] == "Ich bin <b>müde</b>."
    assert translated[1] == "<p>Ich habe Hunger.</p>"
    assert translated[2].startswith("5 < 6")
    assert translated[3] == "Ich bin müde."
    n_best = bare.run(
        "translate", "--model", "en-de", "--top-beams", "2", lines[0]
    ).out.splitlines()
    assert [line.count("<b>") for line in n_best] == [1, 1]
    columns = "k1\tAT&T <b>sells</b> phones.\thttp://a.b/?x=1&y=2"
    first, second, third = bare.run("translate", "--model", "en-de", columns).out.split("\t")
    assert (first, third) == ("k1", "http://a.b/?x=1&y=2\n")
    assert second.startswith("AT&T ")
    assert "<b>" in second


def test_codes_of_languages_may_have_capitals(bare: CommandLine) -> None:
    assert bare.run("translate", "--to", "DE", "I am tired.").out == "Ich bin müde.\n"
    assert "en-de" in bare.run("models", "--src", "EN").out


def test_default_model_without_runs_is_pretrained(bare: CommandLine) -> None:
    done = bare("translate", "im thirsty")
    assert (done.code, done.out) == (0, "Ich habe Durst.\n")
    assert done.err.count("en-de, a pretrained model") == 1
    assert done.err.count("\n") == 1
    done = bare("translate", "--to", "en", "Ich habe Durst.", "Guten Morgen!")
    assert (done.code, done.out) == (0, "I'm thirsty.\nGood morning!\n")
    assert done.err.count("de-en, a pretrained model") == 1
    done = bare("translate", "--model", "en-de", "im thirsty")
    assert (done.code, done.out, done.err) == (0, "Ich habe Durst.\n", "")
    assert list(bare.directory.iterdir()) == []  # nothing is written to the working directory


def test_earlier_names_are_hints_to_the_current_ones(bare: CommandLine) -> None:
    done = bare("translate", "--model", "en-de-small", "im thirsty")
    assert (done.code, done.out) == (0, "Ich habe Durst.\n")
    hint = "nmt: en-de-small is now en-de, which also translates running text\n"
    assert done.err.startswith(hint)  # the fastest type may be measured afterwards


def test_unsupported_target_language_raises(bare: CommandLine) -> None:
    bare("translate", "--to", "fr", "hi").assert_fails(
        1, "no model under runs/ translates into 'fr'", "pretrained models translate into de, en"
    )
    for name in ("German", "deutsch"):
        bare("translate", "--to", name, "hi").assert_fails(
            1, f"translates into '{name}'", "hint: write the code of the language: de"
        )
    bare("translate", "--to", "en", "-m", "en-de", "hi").assert_fails(
        2, "en-de translates into 'de', not 'en'"
    )


def test_runs_have_precedence_over_pretrained_models(trained: CommandLine) -> None:
    assert "using runs/tiny/step-" in trained("translate", "the dog").err
    assert "using runs/tiny/step-" in trained("translate", "the dog", "--to", "de").err
    assert "using de-en, a pretrained model" in trained("translate", "der Hund", "--to", "en").err


def test_directory_with_the_name_has_precedence(trained: CommandLine) -> None:
    shutil.copytree(trained.directory / "runs" / "tiny", trained.directory / "en-de")
    try:
        translation = trained("translate", "the dog", "-m", "en-de").out
        assert translation == trained("translate", "the dog", "-m", "runs/tiny").out
    finally:
        shutil.rmtree(trained.directory / "en-de")


@pytest.mark.slow
def test_reports_and_exports_are_written_under_runs(bare: CommandLine) -> None:
    before = digests()
    (bare.directory / "a.en").write_text("are we done\n")
    (bare.directory / "a.de").write_text("Sind wir fertig?\n")
    (bare.directory / "loud.en").write_text("ARE WE DONE\nI LOVE YOU\n")
    done = bare.run(
        "evaluate",
        "-m",
        "en-de",
        "--src",
        "a.en",
        "--ref",
        "a.de",
        "--json",
        "--resamples",
        "0",
    )
    assert json.loads(done.out)[0]["scores"][0]["value"] == pytest.approx(100)
    done = bare.run(
        "export", "en-de", "--to", "safetensors(weights='int8')", "--verify-with", "loud.en"
    )
    assert sorted(
        path.name for path in (bare.directory / "runs" / "pretrained" / "en-de").iterdir()
    ) == [
        "eval",
        "safetensors",
    ]
    assert "BLEU" in bare("info", "en-de").out
    assert (
        bare("translate", "-m", "runs/pretrained/en-de/safetensors", "are we done").out
        == "Sind wir fertig?\n"
    )
    shutil.copytree(
        bare.directory / "runs" / "pretrained" / "en-de" / "safetensors",
        bare.directory / "en-de",
    )
    bare.run(
        "evaluate",
        "-m",
        pretrained.DIRECTORY / "en-de",
        "--src",
        "a.en",
        "--ref",
        "a.de",
        "--resamples",
        "0",
    )
    assert digests() == before


def test_outputs_of_pretrained_models_go_to_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NMT_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(pretrained.DIRECTORY.parent)
    for name in (pretrained.DIRECTORY / "en-de", Path("pretrained/en-de")):
        assert pretrained.output_dir(name) == tmp_path / "runs" / "pretrained" / "en-de"
    monkeypatch.chdir(tmp_path)
    assert pretrained.output_dir(Path("mine/en-de")) == Path("mine/en-de")


@pytest.mark.parametrize("command", ["average en-de", "plot curves en-de"])
def test_commands_that_need_a_run_raise(bare: CommandLine, command: str) -> None:
    hint = "nmt train --init-from en-de"
    bare(*command.split()).assert_fails(2, "en-de is a pretrained model", hint)


def test_ensemble_of_different_directions_raises(bare: CommandLine) -> None:
    message = "de-en and en-de translate in different directions"
    bare("translate", "-m", "en-de", "-m", "de-en", "hi").assert_fails(1, message)


def short_texts(directory: Path, source: str, target: str, *options: str) -> dict[str, str]:
    """Return the pairs that scripts/short_texts.py writes."""
    nmt = CommandLine(directory, {"NMT_DATA": str(directory)})
    done = nmt.script(SCRIPTS / "short_texts.py", source, target, "hi", *options).check()
    sides = ((directory / f"hi.{code}").read_text().splitlines() for code in (source, target))
    pairs = [*zip(*sides, strict=True)]
    assert done.out == f"{len(pairs)} pairs\n"
    assert len({text for text, _ in pairs}) == len({*pairs})  # each source has one translation
    return dict(pairs)


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """English short texts and their German translations."""
    return short_texts(tmp_path_factory.mktemp("english"), "en", "de")


@pytest.fixture(scope="module")
def german_pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """German short texts, which may be repeated, and their English translations."""
    directory = tmp_path_factory.mktemp("german")
    short_texts(directory, "de", "en")
    return [*read_pairs(directory / "hi.de", directory / "hi.en")]


@pytest.fixture
def german(german_pairs: list[tuple[str, str]]) -> dict[str, str]:
    return dict(german_pairs)


@pytest.mark.slow
def test_short_texts_have_variants_of_spelling_and_punctuation(
    english: dict[str, str], german: dict[str, str], german_pairs: list[tuple[str, str]]
) -> None:
    for text in ("Bye", "bye", "Bye!", "bye!!", "bye..."):
        assert english[text] == "Tschüss!"
    assert english["how are you"] == english["How are you??"] == "Wie geht es dir?"
    assert "how are you!" not in english
    assert english["sugar"] == english["Sugar"] == "Zucker"
    assert "sugar!" not in english
    assert german["tschüss"] == german["Tschau."] == "Bye!"
    assert german["zucker"] == "sugar"
    sources = [source for source, _ in german_pairs]
    assert sources.count("tschüss") > sources.count("zucker") == 1  # courtesies are repeated
    assert {german[text] for text in ("wie geht's", "Wie geht es Ihnen?")} == {"How are you?"}
    for name in ("courtesies", "words"):
        pairs = [
            line.split("\t") for line in (ROOT / "data" / f"{name}.tsv").read_text().splitlines()
        ]
        assert all(len(pair) == 2 and all(pair) for pair in pairs)
        assert len({tuple(pair) for pair in pairs}) == len(pairs)


def test_short_texts_keep_their_own_spelling_and_abbreviations(
    english: dict[str, str], german: dict[str, str]
) -> None:
    assert (english["Turkey"], english["turkey"]) == ("Türkei", "Truthahn")
    assert (german["arm"], german["Arm"], german["weg"], german["Weg"]) == (
        "poor",
        "arm",
        "away",
        "path",
    )
    assert "2 p.m." in english
    assert not {"2 p.m!", "2 p.m"} & english.keys()
    assert all(text.strip() == text for text in english)


def test_short_texts_of_test_sets_are_excluded(tmp_path: Path, english: dict[str, str]) -> None:
    for split in ("train", "valid", "test"):
        sides = (
            {"en": "how are you", "de": "Das, Schönste!"}
            if split == "test"
            else {"en": "A dog.", "de": "Ein Hund."}
        )
        for code, text in sides.items():
            (tmp_path / f"{split}.{code}").write_text(f"{text}\n")
    files = f"files(train='{tmp_path}/train', valid='{tmp_path}/valid', test='{tmp_path}/test')"
    write(tmp_path / "more", ["Turkey"], ["Das Land"])
    tests = ("--test", files, "--test", f"files(test='{tmp_path}/more')")
    rest = short_texts(tmp_path, "en", "de", *tests)
    excluded = {english[text] for text in english.keys() - rest.keys()}
    assert excluded == {"Wie geht es dir?", "Türkei", "Truthahn"}
    assert rest.items() <= english.items()  # without alternative translations
    rows = [
        line.split("\t") for line in (ROOT / "data" / "short_inputs.tsv").read_text().splitlines()
    ]
    assert len(rows) == len({(row[0], row[2]) for row in rows}) == 300
    assert "\nGermany\tDeutschland\n" in (ROOT / "data" / "words.tsv").read_text()
    assert "Germany" in {text for _, _, text, _ in rows}
    assert "Germany" not in english


def test_sentences_to_train_on_are_pairs_that_are_not_tested() -> None:
    data = ROOT / "data"
    pairs = [line.split("\t") for line in (data / "sentences.tsv").read_text().splitlines()]
    assert len(pairs) > 5000
    assert all(len(pair) == 2 and all(pair) for pair in pairs)
    assert len({tuple(pair) for pair in pairs}) == len(pairs)
    assert all(side == side.strip() for pair in pairs for side in pair)
    tested = set()
    for name in ("short_inputs", "first_sentences"):
        for line in (data / f"{name}.tsv").read_text().splitlines():
            _, _, text, accepted = line.split("\t")
            tested |= {sentence_key(text), *map(sentence_key, accepted.split("|"))}
    for line in (data / "sentences_test.tsv").read_text().splitlines():
        tested |= {*map(sentence_key, line.split("\t"))}
    assert not tested & {sentence_key(side) for pair in pairs for side in pair}
    names = [line.split("\t")[1] for line in (data / "proper_names.tsv").read_text().splitlines()]
    text = "\n".join(side for pair in pairs for side in pair)
    assert not [name for name in names if name in text]


def test_lexicon_of_sentence_pairs(tmp_path: Path) -> None:
    """Words that occur together are added, unless they are tested, and those of the word list have
    priority."""
    pairs = [
        ("The {} is here.", "{} ist hier."),
        ("I see the {}.", "Ich sehe {}."),
        ("One {}", "Ein {}"),
        ("Go {}", "Geh {}"),
        ("Go!", "Geh!"),
    ]
    words = [("zebra", "Zebra"), ("kitchen", "Küche"), ("sugar", "Unsinn")]
    for side, code in enumerate(("en", "de")):
        lines = (pair[side].format(word[side]) for word in words for pair in pairs)
        (tmp_path / f"train.{code}").write_text("".join(f"{line}\n" for line in lines))
    options = ("--lexicon", str(tmp_path / "train"))
    english, german = (
        short_texts(tmp_path, *codes, *options) for codes in (("en", "de"), ("de", "en"))
    )
    assert english["zebra"] == english["Zebra"] == "Zebra"
    assert german["zebra"] == "zebra"
    assert english["sugar"] == "Zucker"
    assert "kitchen" not in english


@pytest.mark.parametrize(
    "name", ["clean_corpora", "fuzz_files", "score_pretrained", "short_texts", "vary_names"]
)
def test_help_of_scripts_begins_with_a_paragraph(bare: CommandLine, name: str) -> None:
    path = SCRIPTS / f"{name}.py"
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraph = docstring.partition("\n\n")[0]
    help_text = bare.script(path, "--help").check().out
    assert " ".join(paragraph.split()) in " ".join(help_text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["en", "en", "hi"], "the same language"),
        (["en", "fr", "hi"], "invalid choice: 'fr'"),
        (
            ["en", "de", "hi", "--test", "tatoeb"],
            "unknown test set 'tatoeb'\n     hint: did you mean 'tatoeba'?",
        ),
        (["en", "de", "no/hi"], "cannot write no/hi: No such file or directory"),
    ],
)
def test_invalid_arguments_of_short_texts(
    bare: CommandLine, arguments: list[str], message: str
) -> None:
    done = bare.script(SCRIPTS / "short_texts.py", *arguments)
    assert done.code == 2
    assert message in done.err
    assert not list(bare.directory.iterdir())


def test_rare_names_of_text_replace_known_names_on_both_sides(tmp_path: Path) -> None:
    pairs = [
        ("I saw Astrid in the park.", "Ich sah Astrid im Park."),
        ("Big Ben is old.", "Er ist alt."),
    ]
    for side, code in enumerate(("en", "de")):
        (tmp_path / f"in.{code}").write_text("".join(f"{pair[side]}\n" for pair in pairs * 50))
    tested = "Siobhan Gallagher"
    assert tested in (ROOT / "data" / "proper_names.tsv").read_text()
    english = [f"Yesterday we met Quillby and {tested} in Big Town.", "The town is big."]
    (tmp_path / "mono.en").write_text("\n".join(english) + "\n")
    german = ["Sie fuhr nach Ostrach, und das Haus steht in Hausen.", *["Das Eisen ist alt."] * 20]
    (tmp_path / "mono.de").write_text("\n".join(german) + "\n")
    nmt = CommandLine(tmp_path)
    arguments = (SCRIPTS / "name_pairs.py", "in", "--output", "out", "--mono")
    nmt.script(*arguments, "mono").check()
    sides = ((tmp_path / f"out.{code}").read_text().splitlines() for code in ("en", "de"))
    written = [*zip(*sides, strict=True)]
    matches = [re.fullmatch(r"I saw (.+) in the park\.", source) for source, _ in written]
    names = [match[1] for match in matches if match]
    assert len(names) == 100  # two for each pair with a known name, none for Big Ben
    for name in names:
        assert (f"I saw {name} in the park.", f"Ich sah {name} im Park.") in written
    text = "\n".join(source for source, _ in written)
    words = {*re.findall(r"\w+", text)}
    assert {"Quillby", "Ostrach", "Eisenberg", "Eisenmann"} <= words
    # A place with the first half of Quillby and the second half of another name.
    assert any(word.startswith("Qui") and len(word) > 4 for word in words - {"Quillby"})
    # Words of the language are no names, and tested names such as Eisenach are left out.
    assert not {"Siobhan", "Gallagher", "Eisenach", "Town", "Eisen"} & words
    done = nmt.script(*arguments, "none")
    assert (done.code, "no such file: none.en" in done.err) == (1, True)


def test_numbers_are_written_as_each_language_writes_them(tmp_path: Path) -> None:
    CommandLine(tmp_path).script(SCRIPTS / "number_pairs.py", "--output", "out").check()
    sides = ((tmp_path / f"out.{code}").read_text().splitlines() for code in ("en", "de"))
    pairs = dict(zip(*sides, strict=True))
    assert pairs["See you at half past twelve!"] == "Bis halb eins!"
    num_checked = 0
    for english, german in pairs.items():
        clock = re.search(r"(\d+)(?::(\d\d))? ([ap])\.m\.$", english)
        if clock:
            hour = int(clock[1]) % 12 + 12 * (clock[3] == "p")
            assert f"{hour}.{clock[2]} Uhr" in german or f"{hour} Uhr" in german
            num_checked += 1
        elif english.startswith(("The car cost", "The stone weighs")):
            number = english.split()[-2]
            assert number.translate(str.maketrans(",.", ".,")) in german.split()
            num_checked += 1
    assert num_checked > 300
    tested = (ROOT / "data" / "short_inputs.tsv").read_text()
    assert not any(f"\t{text}\t" in tested for pair in pairs.items() for text in pair)


def test_names_and_numbers_are_varied_on_both_sides(tmp_path: Path) -> None:
    pairs = [
        (f"Tom's dog number {i} bit Mary.", f"Toms Hund Nummer {i} biss Maria.")
        for i in range(200, 400)
    ]
    pairs += [("Tom's here.", "Er ist hier."), ("He's 5.", "Er ist fünf.")] * 10
    pairs += [
        ("Tomatoes.", "Tomaten."),
        ("In 2013.", "Im Jahr 2013."),
        ("On May 23.", "Am 23. Mai."),
    ] * 20
    for side, code in enumerate(("en", "de")):
        (tmp_path / f"in.{code}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    nmt = CommandLine(tmp_path)
    script = SCRIPTS / "vary_names.py"
    assert nmt.script(script, "in", "out").check().out == "280 pairs\n"
    english, german = ((tmp_path / f"out.{code}").read_text().splitlines() for code in ("en", "de"))
    assert [*zip(english[200:], german[200:], strict=True)] == pairs[200:]
    names = set()
    for source, target in zip(english[:200], german[:200], strict=True):
        read = re.fullmatch(r"(.+)'s dog number (\d{3}) bit Mary\.", source)
        written = re.fullmatch(r"(.+?)(?:s|'(?<=[sxzß]')) Hund Nummer (\d{3}) biss Maria\.", target)
        assert read[2] == written[2]
        titles = {"Mrs.": "Frau", "Ms.": "Frau", "Mr.": "Herr"}
        title, _, rest = read[1].partition(" ")
        assert written[1] == (f"{titles[title]} {rest}" if title in titles else read[1])
        names.add(read[1])
    assert len(names) > 90
    assert (
        40 < sum(name == "Tom" for name in (line.partition("'")[0] for line in english[:200])) < 100
    )
    for code, paths, message in (
        (1, "no out", "no such file: no.en"),
        (2, "in no/out", "cannot write no/out"),
    ):
        done = nmt.script(script, *paths.split())
        assert (done.code, message in done.err) == (code, True)
    command = f"{shlex.join([sys.executable, str(script)])} in out | true"  # nothing reads it
    assert (
        subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=True).stderr
        == b""
    )


def test_varied_pairs_have_no_sentences_of_test_sets(tmp_path: Path) -> None:
    letters = "abcdefghij"
    write(tmp_path / "in", [f"Tom {c}." for c in letters], [f"Tom {c}!" for c in letters])
    nmt = CommandLine(tmp_path)
    nmt.script(SCRIPTS / "vary_names.py", "in", "out").check()
    varied = (tmp_path / "out.en").read_text().splitlines()
    tested = [line for line in varied if not line.startswith("Tom ")][:2]
    write(tmp_path / "one", tested[:1], ["x"])
    write(tmp_path / "two", tested[1:], ["x"])
    tests = [f"--test=files(test='{tmp_path}/{name}')" for name in ("one", "two")]
    nmt.script(SCRIPTS / "vary_names.py", "in", "rest", *tests).check()
    rest = (tmp_path / "rest.en").read_text().splitlines()
    unchanged = [f"Tom {line[-2:]}" if line in tested else line for line in varied]
    assert rest == unchanged


@pytest.mark.parametrize(
    ("english", "german", "titles"),
    [
        ("Tom {} sleeps.", "Tom {} schläft.", {"Mr.", "Mrs.", "Ms.", "Dr."}),
        ("Tom likes it, {}.", "Tom gefällt es, {}.", {"Mrs.", "Ms.", "Dr."}),
        ("I see Tom {}.", "Ich sehe Tom {}.", {"Mrs.", "Ms.", "Dr."}),
        ("His dog saw Tom {}.", "Sein Hund sah Tom {}.", {"Dr."}),
    ],
)
def test_titles_and_genders_of_names_suit_the_sentence(
    tmp_path: Path, english: str, german: str, titles: set[str]
) -> None:
    # Different pairs.
    texts = [f"{a} {b}" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    for code, text in (("en", english), ("de", german)):
        (tmp_path / f"in.{code}").write_text("".join(f"{text.format(each)}\n" for each in texts))
    CommandLine(tmp_path).script(SCRIPTS / "vary_names.py", "in", "out").check()
    assert set(re.findall(r"\b(?:Mr|Mrs|Ms|Dr)\.", (tmp_path / "out.en").read_text())) == titles
    given = (tmp_path / "out.en").read_text().split()
    assert bool(
        {"Abigail", "Agnes", "Barbara", "Clara", "Sophie", "Ursula", "Wendy"} & {*given}
    ) == ("Mrs." in titles)


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sample(path: Path, directory: Path) -> Path:
    """Write every tenth line of a file."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    sampled = directory / path.name
    sampled.write_text("".join(lines[::10]), encoding="utf-8")
    return sampled


@pytest.mark.slow
def test_scores_of_test_sets_noisy_and_short_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = ["That's my dog, and it isn't yours.", "The children were sleeping."]
    references = ["Das ist mein Hund, und es ist nicht deiner.", "Die Kinder schliefen."]
    for code, lines in (("en", sources), ("de", references)):
        (tmp_path / f"test.{code}").write_text("".join(f"{line}\n" for line in lines))
    name = f"files(test='{tmp_path}/test')"
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setattr(sys, "argv", ["score_pretrained.py", "--test", name, "--wrong", *MODELS])
    script = load_script("score_pretrained")
    inputs = [line.split("\t") for path in script.INPUTS for line in path.read_text().splitlines()]
    short_inputs = [row[0] for row in inputs if row[1] != "first sentence"]
    assert Counter(short_inputs) == {"en": 150, "de": 150}
    assert all(len(row) == 4 for row in inputs)
    proper_names = [line.split("\t") for line in script.NAMES.read_text().splitlines()]
    assert len(proper_names) == 200
    for language in ("en", "de"):
        assert all((language, kind) in script.NAME_SENTENCES for kind, _ in proper_names)
    monkeypatch.setattr(script, "RESAMPLES", 100)
    monkeypatch.setattr(script, "INPUTS", [sample(path, tmp_path) for path in script.INPUTS])
    monkeypatch.setattr(script, "NAMES", sample(script.NAMES, tmp_path))
    script.main()
    output = capsys.readouterr().out
    wrong, scores, short, names = (text.splitlines() for text in output.split("\n\n"))
    assert wrong
    cells = {name: row for name, *row in (line.strip("| ").split(" | ") for line in scores)}
    columns = ("BLEU", "chrF2", "short or loop")
    assert cells["test set"] == [f"{model} {column}" for model in MODELS for column in columns]
    kinds = (
        "lowercase",
        "uppercase",
        "no_punctuation",
        "lowercase_no_punctuation",
        "typos",
        "no_apostrophes",
    )
    assert {name, *(f"… with `{kind}`" for kind in kinds)} <= cells.keys()
    assert all(re.fullmatch(r"\d+\.\d ± \d+\.\d|\d+\.0%", cell) for cell in cells[name])
    assert cells[name] != cells["… with `typos`"]  # the noise reaches the model
    for table, total, total_wrong in ((short, "all short inputs", 15), (names, "all names", 20)):
        rows = dict(line.strip("| ").split(" | ", 1) for line in table if "---" not in line)
        assert rows[table[0].strip("| ").partition(" | ")[0]] == " | ".join(MODELS)
        assert all(cell.endswith(f" of {total_wrong}") for cell in rows[total].split(" | "))
    for column, model in enumerate(MODELS):
        num_wrong = 0
        for table in (short, names):
            rows = [
                line.strip("| ").split(" | ")[1:]
                for line in table[2:]
                if not line.startswith("| all")
            ]
            counts = [[int(number) for number in row[column].split(" of ")] for row in rows]
            num_wrong += sum(total - correct for correct, total in counts)
        assert sum(line.startswith(f"{model}: ") for line in wrong) == num_wrong
    failed = CommandLine(tmp_path).script(SCRIPTS / "score_pretrained.py", "nowhere")
    assert failed.code == 1
    assert "error: " in failed.err


def test_info_of_a_pretrained_model(bare: CommandLine) -> None:
    done = bare.run("info", "en-de")
    output = " ".join(done.out.split())
    for text in (
        "20.4 M parameters",
        "tatoeba/train (CC BY 2.0 FR (tatoeba.org))",
        "rotary positions",
        "license cc-by-sa-4.0 (weights)",
    ):
        assert text in output
    assert output.endswith(
        "card see README.md in that directory for the training history and evaluation"
    )


def test_models_show_license_size_and_scores_of_their_cards(bare: CommandLine) -> None:
    lines = bare.run("models", "--src", "en", "--tgt", "de").out.splitlines()
    (row,) = (" ".join(line.split()) for line in lines if line.startswith("en-de "))
    assert re.fullmatch(
        r"en-de en-de \d+ cc-by-sa-4.0 yes Tatoeba \d\d\.\d, newstest2013 \d\d\.\d", row
    )


def test_directory_with_the_name_is_ignored_without_model_option(bare: CommandLine) -> None:
    (bare.directory / "en-de").mkdir()
    assert bare("translate", "im thirsty").out == "Ich habe Durst.\n"


@pytest.mark.slow
def test_ctranslate2_export_is_found_by_name(bare: CommandLine) -> None:
    pytest.importorskip("ctranslate2")
    (bare.directory / "few.en").write_text("im thirsty\n")
    bare.run("export", "en-de", "--to", "ctranslate2", "--verify-with", "few.en")
    for arguments in ([], ["-m", "en-de"]):
        assert (
            bare("translate", "--engine", "ctranslate2", *arguments, "im thirsty").out
            == "Ich habe Durst.\n"
        )


@pytest.mark.slow
def test_fine_tuning(trained: CommandLine) -> None:
    options = [
        "train.steps=1",
        "train.valid_pairs=5",
        "train.batch_tokens=256",
        "data.train=files(train='text')",
    ]
    changes = [word for option in options for word in ("--set", option)]
    # The languages of this model are not those of the default config.
    trained.run("train", "--init-from", "de-en", "--run", "runs/de-en", *changes)
    config = discovery.load(trained.directory / "runs/de-en").config
    assert (config.data.src, config.data.tgt) == ("de", "en")
    assert config.lowercase_all_caps
    shutil.rmtree(trained.directory / "runs/de-en")


def digests() -> dict[str, str]:
    files = [
        path
        for path in pretrained.DIRECTORY.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_the_license_of_a_pretrained_model_is_carried_into_derived_models(
    nmt: CommandLine,
) -> None:
    (nmt.directory / "few.en").write_text("im thirsty\n")
    nmt.run("export", "en-de", "--to", "safetensors", "--output", "copy", "--verify-with", "few.en")
    nmt.run("average", "en-de", "copy", "--run", "runs/mean")
    for run in ("copy", "runs/mean"):
        info = nmt.run("info", run).out
        assert "cc-by-sa-4.0 (weights)" in info
    assert "weights of nmt en-de, license cc-by-sa-4.0" in " ".join(info.split())
