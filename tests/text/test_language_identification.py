from __future__ import annotations

import pytest

from nmt.text import language_identification as languages
from nmt.text.language_identification import is_wrong_language, language_probabilities
from nmt.text.words import normalized_words

SENTENCES = {
    "en": (
        "Please close the window before you leave the office tonight.",
        "She was sure that nobody had seen the letter on the table.",
        "We cannot deliver your order until the payment has arrived.",
    ),
    "de": (
        "Bitte schließen Sie das Fenster, bevor Sie heute Abend das Büro verlassen.",
        "Sie war sicher, dass niemand den Brief auf dem Tisch gesehen hatte.",
        "Wir können Ihre Bestellung erst liefern, wenn die Zahlung eingegangen ist.",
    ),
    "fr": (
        "Veuillez fermer la fenêtre avant de quitter le bureau ce soir.",
        "Elle était sûre que personne n'avait vu la lettre sur la table.",
        "Nous ne pouvons pas livrer votre commande avant le paiement.",
    ),
    "es": (
        "Por favor, cierre la ventana antes de salir de la oficina esta noche.",
        "Estaba segura de que nadie había visto la carta sobre la mesa.",
        "No podemos entregar su pedido hasta que llegue el pago.",
    ),
    "nl": (
        "Sluit alstublieft het raam voordat u vanavond het kantoor verlaat.",
        "Het weer was gisteren zo slecht dat we niet naar buiten konden.",
        "Wij kunnen de bestelling helaas pas versturen nadat u heeft betaald.",
    ),
    "it": (
        "Per favore, chiuda la finestra prima di lasciare l'ufficio stasera.",
        "Era sicura che nessuno avesse visto la lettera sul tavolo.",
        "Non possiamo consegnare il suo ordine prima del pagamento.",
    ),
    "pl": (
        "Proszę zamknąć okno przed wyjściem z biura dziś wieczorem.",
        "Była pewna, że nikt nie widział listu na stole.",
        "Nie możemy dostarczyć zamówienia przed otrzymaniem płatności.",
    ),
}
SHORT = {
    "en": ("The neighbours are sleeping already", "Nothing happened yesterday evening"),
    "de": ("Die Nachbarn schlafen schon", "Gestern Abend ist nichts passiert"),
}
MIXED = {
    "en": (
        "See https://www.example.org/help?page=12 for the list of errors and what they mean.",
        "Johannes Müller from Schwäbisch Hall has been with the firm since 2014.",
        "Run apt-get install nmt-tools 2.3.1 and then restart the computer.",
    ),
    "de": (
        "Unter https://www.example.org/help?page=12 steht, was die Fehler bedeuten.",
        "Mary Watson aus New York City ist seit 2014 bei der Firma Pacific Rim Ltd.",
        "Mit apt-get install nmt-tools 2.3.1 wird das Programm neu installiert.",
    ),
}
TEXTS = [
    (text, language)
    for sentences in (SENTENCES, SHORT, MIXED)
    for language, texts in sentences.items()
    for text in texts
]


@pytest.mark.parametrize("in_capitals", [False, True])
@pytest.mark.parametrize(("text", "language"), TEXTS)
def test_words_do_not_change_the_language(text: str, language: str, in_capitals: bool) -> None:
    text = text.upper() if in_capitals else text
    words = normalized_words(text)
    assert not is_wrong_language(text, language, words)
    for code in ("en", "de", "fr", "pt", "da"):
        assert is_wrong_language(text, code, words) == is_wrong_language(text, code)


@pytest.mark.parametrize("in_capitals", [False, True])
@pytest.mark.parametrize("language", SENTENCES)
def test_sentences_in_another_language_are_noticed(language: str, in_capitals: bool) -> None:
    for text in SENTENCES[language]:
        text = text.upper() if in_capitals else text
        for code in {"en", "de"} - {language}:
            assert is_wrong_language(text, code, normalized_words(text))


def test_typical_words_of_most_sentences_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    identified = []

    def identify(text: str, max_languages: int) -> dict[str, float]:
        identified.append(text)
        return language_probabilities(text, max_languages)

    monkeypatch.setattr(languages, "language_probabilities", identify)
    for language, texts in SENTENCES.items():
        for text in texts:
            is_wrong_language(text, language, normalized_words(text))
    num_sentences = sum(map(len, SENTENCES.values()))
    assert len(identified) < num_sentences / 4


def test_text_in_another_script_is_wrong_despite_typical_words() -> None:
    words = "and this is the end of the story with which they began".split()
    text = f"{'Достопримечательность' * 5} {' '.join(words)}"
    assert not is_wrong_language(" ".join(words), "en", words)
    assert is_wrong_language(text, "en", normalized_words(text))


def test_case_and_line_breaks_of_a_text() -> None:
    text = "Die Nachbarn haben die ganze Nacht gefeiert und getanzt."
    expected = language_probabilities(text.lower(), 1)
    assert language_probabilities(text.upper(), 1) == expected
    assert language_probabilities(text.upper().replace(" ", "\n"), 1) == expected
    assert expected.keys() == {"de"}


def test_surrogates_are_no_error() -> None:
    text = "Die Nachbarn haben \ud800 die ganze Nacht gefeiert, Nach\ud800barn!"
    assert not is_wrong_language(text, "de", normalized_words(text))
    assert is_wrong_language(text, "fr", normalized_words(text))
