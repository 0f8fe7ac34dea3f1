from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.core.errors import ConfigError
from nmt.data.clean import CLEANERS, cleaning_pipeline, is_blank
from nmt.data.pairs import Pair
from nmt.text.normalization import count_words, normalize


def run_clean(pairs: list[Pair], *specs: str) -> list[Pair]:
    return list(cleaning_pipeline(pairs, specs))


def test_blank_pairs_are_always_dropped_and_counted() -> None:
    result = cleaning_pipeline(
        [("a", "b"), ("", "b"), ("a", " \t\u200b\u00a0"), ("\x00\ufeff", "b")], []
    )
    assert list(result) == [("a", "b")]
    assert result.dropped == {"blank": 3}


def test_counts_have_all_steps_in_order() -> None:
    pairs = [("a b", "c d"), ("a b", "c d"), ("same", "same"), ("", "x"), ("a", "b " * 40)]
    result = cleaning_pipeline(iter(pairs), ["dedup", "drop_identical", "ratio(max=2.0)"])
    assert list(result) == [("a b", "c d")]
    expected = {"blank": 1, "dedup": 1, "drop_identical": 1, "ratio(max=2.0)": 1}
    assert list(result.dropped.items()) == list(expected.items())


def test_equal_steps_are_counted_together() -> None:
    pairs = [("a b", "c d"), ("a b", "c d"), ("a  b", "c d"), ("a b", "c d")]
    result = cleaning_pipeline(pairs, ["dedup", "normalize", "dedup"])
    assert len(list(result)) == 1
    assert result.dropped == {"blank": 0, "dedup": 3, "normalize": 0}


def test_letters_of_scripts_without_spaces_count_as_words() -> None:
    english = "We met the new teacher in front of the school on Monday."
    good = [
        (english, "星期一我们在学校门前见到了新老师。"),
        (english, "เราพบครูคนใหม่หน้าโรงเรียน"),
        ("Good morning.", "สวัสดีตอนเช้า"),
    ]
    bad = [("Good morning.", good[0][1]), (english, "学校")]
    assert run_clean([*good, *bad], "ratio(max=3.0)") == good
    assert run_clean([*good, *bad], "length(max=12)") == [*good[1:], bad[1]]
    assert [count_words(text) for text in ("“东京 iPhone手机”", "ตอนเช้า", "Ich bin müde.", "")] == [
        7,
        2,
        3,
        0,
    ]


def test_second_iteration_resets_the_counts() -> None:
    result = cleaning_pipeline([("a", "b"), ("", "b")], ["normalize"])
    assert list(result) == list(result) == [("a", "b")]
    assert result.dropped == {"blank": 1, "normalize": 0}


def test_normalize() -> None:
    assert normalize("  a\tb  c\u00a0\u2028d\x85e ") == "a b c d e"
    assert normalize("u\u0308ber") == normalize("u\u200b\u0308ber") == "über"
    assert normalize("▁▁ a▁b") == "__ a_b"
    assert normalize("a\ud800 b\udcff") == "a\ufffd b\ufffd"
    assert normalize("Do\u00adnau\u200bdampf\x07\ufeff") == "Donaudampf"
    assert normalize("a \u200b b") == "a b"
    # The joiner is part of the Persian spelling.
    assert normalize("می\u200cخواهم") == "می\u200cخواهم"


@given(st.lists(st.tuples(st.text(), st.text())))
def test_normalize_keeps_number_of_pairs(pairs: list[Pair]) -> None:
    out = list(CLEANERS["normalize"](iter(pairs)))
    assert len(out) == len(pairs)
    assert all(normalize(side) == side for pair in out for side in pair)


@given(st.text())
def test_text_emptied_by_normalize_is_blank(text: str) -> None:
    if not normalize(text):
        assert is_blank(text)


def test_length_limits_words_and_characters() -> None:
    assert run_clean([("a " * 5, "b")], "length(max=5)") == [("a " * 5, "b")]
    assert run_clean([("a " * 6, "b")], "length(max=5)") == []
    assert run_clean([("a", "b " * 6)], "length(max=5)") == []
    assert run_clean([("a", "b c")], "length(min=2)") == []
    assert run_clean([("x" * 2001, "b")], "length") == []
    assert run_clean([("x" * 2001, "b")], "length(max_chars=3000)") != []


def test_ratio_is_smoothed_for_short_sentences() -> None:
    greeting = ("hi", "one two three four five")
    assert run_clean([greeting], "ratio") == [greeting]
    assert run_clean([greeting], "ratio(smoothing=0.0)") == []
    assert run_clean([("a " * 10, "b " * 60), ("a " * 60, "b " * 10)], "ratio") == []
    assert len(run_clean([("a " * 10, "b " * 30)], "ratio")) == 1


def test_identical_drops_untranslated_text() -> None:
    assert run_clean([("ok", "ok "), ("ok", "OK")], "drop_identical") == [("ok", "OK")]


def test_dedup_keeps_first_pair_and_other_translations() -> None:
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("ab", ""), ("a\nb", "c"), ("a", "b\nc")]
    assert run_clean(pairs, "dedup") == [("a", "b"), ("a", "c"), ("a\nb", "c"), ("a", "b\nc")]


def test_german_reformed_ss_changes_only_short_vowels() -> None:
    old = (
        "daß muß mußte müßte gewußt bewußt läßt Faßt paßt haßerfüllt naß blaß kraß häßlich gräßlich"
        " unpäßlich"
    )
    old += (
        " Prozeß Kongreß Meßinstrument ißt mißachten Kompromißentschließung Biß Schluß"
        " Schlußabstimmung Fluß Ausschuß"
    )
    old += " Genuß Kuß küßt wüßte Rußland Schloß goß genoß verdroß schoß floß PROZESS MUẞ Iß Elsaß"
    old += " Verdruß Guß sproß näßt Kontrabaß"
    new = (
        "dass muss musste müsste gewusst bewusst lässt Fasst passt hasserfüllt nass blass krass"
        " hässlich grässlich"
    )
    new += (
        " unpässlich Prozess Kongress Messinstrument isst missachten Kompromissentschließung Biss"
        " Schluss"
    )
    new += (
        " Schlussabstimmung Fluss Ausschuss Genuss Kuss küsst wüsste Russland Schloss goss genoss"
        " verdross schoss floss"
    )
    new += " PROZESS MUSS Iss Elsass Verdruss Guss spross nässt Kontrabass"
    assert run_clean([(old, old)], "german_reformed_ss") == [(new, new)]
    long = (
        "Fuß Gruß Buße Muße müßig Spaß saß fraß Maß mäßig groß Größe bloß Stoß Schoß weiß heißt"
        " ließ schließlich Straße"
    )
    long += " Mutterschoß"
    assert run_clean([("Strauß", long)], "german_reformed_ss") == [("Strauß", long)]
    assert run_clean([("DAS MUẞ SEIN", "GROẞ")], "german_reformed_ss") == [
        ("DAS MUSS SEIN", "GROẞ")
    ]


def test_straight_quotes_follow_the_source() -> None:
    straight, typographic = 'She said "no".', "She said “no”."
    german, guillemets = "Sie sagte „nein“.", "Sie sagte »nein«."
    assert run_clean(
        [
            (straight, german),
            (straight, guillemets),
            (typographic, german),
            ('a “b” and a 2" pipe', german),
            ("She said no.", german),
            ('"Yes", he said.', "« Oui », dit-il."),
        ],
        "straight_quotes",
    ) == [
        (straight, 'Sie sagte "nein".'),
        (straight, 'Sie sagte "nein".'),
        (typographic, german),
        ('a “b” and a 2" pipe', german),
        ("She said no.", german),
        ('"Yes", he said.', '"Oui", dit-il.'),
    ]


def test_final_punctuation_follows_the_source() -> None:
    assert run_clean(
        [
            ("Danke!", "Thanks."),
            ("Danke.", "Thanks!"),
            ("Wirklich?", "Really!"),
            ("Hör auf!", "Stop it..."),
            ("Danke", "Thanks."),
            ("Komm!", "Come, J."),
        ],
        "final_punctuation",
    ) == [
        ("Danke!", "Thanks!"),
        ("Danke.", "Thanks."),
        ("Wirklich?", "Really!"),
        ("Hör auf!", "Stop it..."),
        ("Danke", "Thanks."),
        ("Komm!", "Come, J."),
    ]


def test_charset_drops_other_scripts() -> None:
    good, greek, mixed, numbers = (
        ("word", "Übergröße"),
        ("word", "λόγος"),
        ("word λ", "Wort"),
        ("12 %", "12 %"),
    )
    assert run_clean([good, greek, mixed, numbers], "script") == [good, mixed, numbers]
    assert run_clean([good, greek], "script(tgt='greek')") == [greek]
    assert run_clean([mixed], "script(min=0.9)") == []
    assert run_clean([("слово", "word")], "script(src='cyrillic')") == [("слово", "word")]


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("dedupe", "unknown cleaning step 'dedupe'", "did you mean 'dedup'?"),
        ("length(maxx=3)", "has no option 'maxx'", "max"),
        ("length(max='x')", "max must be an integer", ""),
        ("length(max=1, min=2)", "min", ""),
        ("ratio(max=0.5)", "at least 1", ""),
        ("script(src='latn')", "unknown script 'latn'", "did you mean 'latin'?"),
    ],
)
def test_invalid_spec_is_rejected_before_reading(spec: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        cleaning_pipeline(iter(()), [spec])
    assert hint in caught.value.hint


def test_steps_are_lazy() -> None:
    def endless():
        n = 0
        while True:
            n += 1
            yield f"a {n}", f"b {n}"

    result = iter(cleaning_pipeline(endless(), list(CLEANERS)))
    assert next(result) == ("a 1", "b 1")
