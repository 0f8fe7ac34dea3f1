"""The vocabulary: people, things by use, adjectives, places and times."""

from __future__ import annotations

from phrasebook.words import Adjective, Participant, Thing, named, paired, pronoun, relative, thing

# --- things
# -----------------------------------------------------------------------------------------------------------  # noqa: E501
#

DISHES = [
    thing("apple", "Apfel", "m", "Äpfel"),
    thing("banana", "Banane", "f", "Bananen"),
    thing("egg", "Ei", "n", "Eier"),
    thing("cake", "Kuchen", "m", "Kuchen"),
    thing("orange", "Orange", "f", "Orangen"),
    thing("pear", "Birne", "f", "Birnen"),
    thing("potato", "Kartoffel", "f", "Kartoffeln"),
    thing("tomato", "Tomate", "f", "Tomaten"),
    thing("roll", "Brötchen", "n", "Brötchen"),
    thing("pizza", "Pizza", "f", "Pizzas"),
    thing("sausage", "Wurst", "f", "Würste"),
    thing("biscuit", "Keks", "m", "Kekse"),
    thing("pancake", "Pfannkuchen", "m", "Pfannkuchen"),
    thing("salad", "Salat", "m", "Salate"),
]
FOOD = [
    thing("bread", "Brot", "n"),
    thing("meat", "Fleisch", "n"),
    thing("fish", "Fisch", "m"),
    thing("cheese", "Käse", "m"),
    thing("rice", "Reis", "m"),
    thing("chocolate", "Schokolade", "f"),
    thing("ham", "Schinken", "m"),
    thing("fruit", "Obst", "n"),
    thing("ice cream", "Eis", "n"),
    thing("honey", "Honig", "m"),
    thing("soup", "Suppe", "f"),
]
DRINKS = [
    thing("water", "Wasser", "n"),
    thing("coffee", "Kaffee", "m"),
    thing("tea", "Tee", "m"),
    thing("milk", "Milch", "f"),
    thing("juice", "Saft", "m"),
    thing("beer", "Bier", "n"),
    thing("wine", "Wein", "m"),
    thing("lemonade", "Limonade", "f"),
]
READING = [
    thing("book", "Buch", "n", "Bücher"),
    thing("newspaper", "Zeitung", "f", "Zeitungen"),
    thing("letter", "Brief", "m", "Briefe"),
    thing("story", "Geschichte", "f", "Geschichten"),
    thing("magazine", "Zeitschrift", "f", "Zeitschriften"),
    thing("email", "E-Mail", "f", "E-Mails"),
]
CLOTHES = [
    thing("coat", "Mantel", "m", "Mäntel"),
    thing("jacket", "Jacke", "f", "Jacken"),
    thing("shirt", "Hemd", "n", "Hemden"),
    thing("dress", "Kleid", "n", "Kleider"),
    thing("skirt", "Rock", "m", "Röcke"),
    thing("hat", "Hut", "m", "Hüte"),
    thing("sweater", "Pullover", "m", "Pullover"),
    thing("scarf", "Schal", "m", "Schals", "scarves"),
    thing("cap", "Mütze", "f", "Mützen"),
    thing("shoe", "Schuh", "m", "Schuhe"),
]
TROUSERS = paired("trousers", "Hose", "f", "Hosen")
GLASSES = paired("glasses", "Brille", "f", "Brillen")
GARMENTS = CLOTHES[:-1]
BELONGINGS = [
    thing("bag", "Tasche", "f", "Taschen"),
    thing("key", "Schlüssel", "m", "Schlüssel"),
    thing("phone", "Handy", "n", "Handys"),
    thing("computer", "Computer", "m", "Computer"),
    thing("camera", "Kamera", "f", "Kameras"),
    thing("umbrella", "Regenschirm", "m", "Regenschirme"),
    thing("watch", "Uhr", "f", "Uhren"),
    thing("suitcase", "Koffer", "m", "Koffer"),
    thing("ring", "Ring", "m", "Ringe"),
    thing("pen", "Stift", "m", "Stifte"),
    thing("picture", "Bild", "n", "Bilder"),
    thing("ball", "Ball", "m", "Bälle"),
]
VEHICLES = [thing("car", "Auto", "n", "Autos"), thing("bike", "Fahrrad", "n", "Fahrräder")]
FURNITURE = [
    thing("table", "Tisch", "m", "Tische"),
    thing("chair", "Stuhl", "m", "Stühle"),
    thing("lamp", "Lampe", "f", "Lampen"),
    thing("bed", "Bett", "n", "Betten"),
    thing("sofa", "Sofa", "n", "Sofas"),
    thing("cupboard", "Schrank", "m", "Schränke"),
]
DISHWARE = [
    thing("cup", "Tasse", "f", "Tassen"),
    thing("glass", "Glas", "n", "Gläser"),
    thing("plate", "Teller", "m", "Teller"),
    thing("knife", "Messer", "n", "Messer", "knives"),
    thing("spoon", "Löffel", "m", "Löffel"),
    thing("bottle", "Flasche", "f", "Flaschen"),
]
GIFTS = [thing("present", "Geschenk", "n", "Geschenke"), thing("flower", "Blume", "f", "Blumen")]
ANIMALS = [
    thing("dog", "Hund", "m", "Hunde"),
    thing("cat", "Katze", "f", "Katzen"),
    thing("horse", "Pferd", "n", "Pferde"),
    thing("bird", "Vogel", "m", "Vögel"),
    thing("rabbit", "Kaninchen", "n", "Kaninchen"),
    thing("cow", "Kuh", "f", "Kühe"),
]
BUS = thing("bus", "Bus", "m", "Busse")
ROOMS = [
    thing("house", "Haus", "n", "Häuser"),
    thing("flat", "Wohnung", "f", "Wohnungen"),
    thing("room", "Zimmer", "n", "Zimmer"),
    thing("kitchen", "Küche", "f", "Küchen"),
    thing("bathroom", "Bad", "n", "Bäder"),
]
OPENINGS = [thing("door", "Tür", "f", "Türen"), thing("window", "Fenster", "n", "Fenster")]
BROTHER = thing("brother", "Bruder", "m", "Brüder")
SISTER = thing("sister", "Schwester", "f", "Schwestern")
MOTHER = thing("mother", "Mutter", "f", "Mütter")
FATHER = thing("father", "Vater", "m", "Väter")
PARENTS = thing("parent", "Elternteil", "n", "Eltern")
SON = thing("son", "Sohn", "m", "Söhne")
DAUGHTER = thing("daughter", "Tochter", "f", "Töchter")
UNCLE = thing("uncle", "Onkel", "m", "Onkel")
AUNT = thing("aunt", "Tante", "f", "Tanten")
GRANDMOTHER = thing("grandmother", "Großmutter", "f", "Großmütter")
GRANDFATHER = thing("grandfather", "Großvater", "m", "Großväter")
FRIEND = thing("friend", "Freund", "m", "Freunde")
BOSS = thing("boss", "Chef", "m", "Chefs")
TEACHER = thing("teacher", "Lehrer", "m", "Lehrer")
NEIGHBOR = thing("neighbour", "Nachbar", "m", "Nachbarn", weak=True)
COLLEAGUE = thing("colleague", "Kollege", "m", "Kollegen", weak=True)
CHILD = thing("child", "Kind", "n", "Kinder", "children")
MAN = thing("man", "Mann", "m", "Männer", "men")
WOMAN = thing("woman", "Frau", "f", "Frauen", "women")
BOY = thing("boy", "Junge", "m", "Jungen", weak=True)
GIRL = thing("girl", "Mädchen", "n", "Mädchen")
FAMILY = [BROTHER, SISTER, MOTHER, FATHER, SON, DAUGHTER, UNCLE, AUNT, GRANDMOTHER, GRANDFATHER]
ACQUAINTANCES = [FRIEND, BOSS, TEACHER, NEIGHBOR, COLLEAGUE]

THINGS = {
    item.en: item
    for item in [
        *DISHES,
        *FOOD,
        *DRINKS,
        *READING,
        *CLOTHES,
        TROUSERS,
        GLASSES,
        *BELONGINGS,
        *VEHICLES,
        *FURNITURE,
        *DISHWARE,
        *GIFTS,
        *ANIMALS,
        *ROOMS,
        *OPENINGS,
        *FAMILY,
        *ACQUAINTANCES,
        CHILD,
        MAN,
        WOMAN,
        BOY,
        GIRL,
    ]
}


def items(names: str) -> list[Thing]:
    """Return things by their English names, separated by spaces."""
    return [THINGS[name] for name in names.split()]


JOBS = [  # masculine, feminine
    (thing("teacher", "Lehrer", "m", "Lehrer"), thing("teacher", "Lehrerin", "f", "Lehrerinnen")),
    (thing("doctor", "Arzt", "m", "Ärzte"), thing("doctor", "Ärztin", "f", "Ärztinnen")),
    (thing("cook", "Koch", "m", "Köche"), thing("cook", "Köchin", "f", "Köchinnen")),
    (thing("baker", "Bäcker", "m", "Bäcker"), thing("baker", "Bäckerin", "f", "Bäckerinnen")),
    (
        thing("student", "Student", "m", "Studenten", weak=True),
        thing("student", "Studentin", "f", "Studentinnen"),
    ),
    (
        thing("engineer", "Ingenieur", "m", "Ingenieure"),
        thing("engineer", "Ingenieurin", "f", "Ingenieurinnen"),
    ),
    (
        thing("nurse", "Krankenpfleger", "m", "Krankenpfleger"),
        thing("nurse", "Krankenschwester", "f", "-n"),
    ),
    (thing("lawyer", "Anwalt", "m", "Anwälte"), thing("lawyer", "Anwältin", "f", "Anwältinnen")),
]

# --- people
# -----------------------------------------------------------------------------------------------------------  # noqa: E501
#

I = pronoun("1s")  # noqa: E741
YOU = pronoun("2s")
HE = pronoun("3m")
SHE = pronoun("3f")
WE = pronoun("1p")
THEY = pronoun("3p")
IT = pronoun("3n")
YOU_CHILDREN = pronoun("2p", ("children", "Kinder"))
YOU_BOTH = Participant("2p", "you two", "you two", ("ihr beide", "euch beide", "euch beiden"))
MR_WEBER = pronoun("Sie", ("Mr Weber", "Herr Weber"))
MRS_KLEIN = pronoun("Sie", ("Mrs Klein", "Frau Klein"))
MR_FISCHER = pronoun("Sie", ("Mr Fischer", "Herr Fischer"))
MRS_WAGNER = pronoun("Sie", ("Mrs Wagner", "Frau Wagner"))
TOM = named("Tom", "3m")
BEN = named("Ben", "3m")
PAUL = named("Paul", "3m")
ANNA = named("Anna", "3f")
LISA = named("Lisa", "3f")
MARIA = named("Maria", "3f")
TOM_AND_ANNA = Participant("3p", "Tom and Anna", "Tom and Anna", ("Tom und Anna",) * 3)
MY_BROTHER = relative(BROTHER, "3m", "1s")
MY_SISTER = relative(SISTER, "3f", "1s")
MY_MOTHER = relative(MOTHER, "3f", "1s")
MY_FATHER = relative(FATHER, "3m", "1s")
MY_PARENTS = relative(PARENTS, "3p", "1s", plural=True)
MY_UNCLE = relative(UNCLE, "3m", "1s")
MY_AUNT = relative(AUNT, "3f", "1s")
OUR_TEACHER = relative(TEACHER, "3m", "1p")
OUR_NEIGHBOR = relative(NEIGHBOR, "3m", "1p")
THE_CHILDREN = relative(CHILD, "3p", "the", plural=True)
OUR_FRIENDS = relative(FRIEND, "3p", "1p", plural=True)

PRONOUNS = [I, YOU, HE, SHE, WE, THEY]
ADDRESSED = [YOU, YOU_CHILDREN, YOU_BOTH, MR_WEBER, MRS_KLEIN, MR_FISCHER, MRS_WAGNER]
NAMES = [TOM, BEN, PAUL, ANNA, LISA, MARIA]
OTHERS = [
    *NAMES,
    TOM_AND_ANNA,
    MY_BROTHER,
    MY_SISTER,
    MY_MOTHER,
    MY_FATHER,
    MY_PARENTS,
    MY_UNCLE,
    MY_AUNT,
    OUR_TEACHER,
    OUR_NEIGHBOR,
    THE_CHILDREN,
    OUR_FRIENDS,
]
# Pronouns; the most common ones are repeated.
SPEAKERS = [*PRONOUNS, I, HE, SHE, WE]
ANYONE = [*SPEAKERS, *ADDRESSED, *OTHERS]  # subject of a statement or a question
NOT_ADDRESSED = [*SPEAKERS, *OTHERS]
OBJECTS = [
    I,
    YOU,
    HE,
    SHE,
    WE,
    THEY,
    TOM,
    ANNA,
    LISA,
    MR_WEBER,
    MRS_KLEIN,
    YOU_CHILDREN,
    MY_SISTER,
    MY_PARENTS,
]

# --- qualities
# --------------------------------------------------------------------------------------------------------  # noqa: E501
#

MOODS = [
    Adjective("tired", "müde", "müd"),
    Adjective("happy", "glücklich"),
    Adjective("sad", "traurig"),
    Adjective("sick", "krank"),
    Adjective("healthy", "gesund"),
    Adjective("angry", "wütend"),
    Adjective("nervous", "nervös"),
    Adjective("satisfied", "zufrieden"),
    Adjective("excited", "aufgeregt"),
    Adjective("surprised", "überrascht"),
    Adjective("disappointed", "enttäuscht"),
    Adjective("busy", "beschäftigt"),
]
YOUNG = Adjective("young", "jung", "", "younger", "jünger")
CHARACTER = [
    Adjective("friendly", "freundlich"),
    Adjective("polite", "höflich"),
    Adjective("clever", "klug", "", "cleverer", "klüger"),
    Adjective("lazy", "faul", "", "lazier", "fauler"),
    Adjective("hard-working", "fleißig"),
    Adjective("strong", "stark", "", "stronger", "stärker"),
    Adjective("brave", "mutig", "", "braver", "mutiger"),
    Adjective("careful", "vorsichtig"),
    Adjective("curious", "neugierig"),
    Adjective("tall", "groß", "", "taller", "größer"),
    Adjective("old", "alt", "", "older", "älter"),
    YOUNG,
    Adjective("rich", "reich", "", "richer", "reicher"),
    Adjective("poor", "arm", "", "poorer", "ärmer"),
    Adjective("punctual", "pünktlich"),
]
SITUATIONS = [  # not graded: no "very"
    Adjective("done", "fertig"),
    Adjective("ready", "bereit"),
    Adjective("alone", "allein"),
    Adjective("awake", "wach"),
    Adjective("married", "verheiratet"),
    Adjective("at home", "zu Hause"),
    Adjective("here", "hier"),
    Adjective("there", "da"),
    Adjective("outside", "draußen"),
    Adjective("on holiday", "im Urlaub"),
]
NEW = Adjective("new", "neu", "", "newer", "neuer")
OLD = Adjective("old", "alt", "", "older", "älter")
BIG = Adjective("big", "groß", "", "bigger", "größer")
SMALL = Adjective("small", "klein", "", "smaller", "kleiner")
RED = Adjective("red", "rot")
BLUE = Adjective("blue", "blau")
GREEN = Adjective("green", "grün")
BLACK = Adjective("black", "schwarz")
WHITE = Adjective("white", "weiß")
EXPENSIVE = Adjective("expensive", "teuer", "teur", "more expensive", "teurer")
CHEAP = Adjective("cheap", "billig", "", "cheaper", "billiger")
BEAUTIFUL = Adjective("beautiful", "schön", "", "more beautiful", "schöner")
UGLY = Adjective("ugly", "hässlich", "", "uglier", "hässlicher")
CLEAN = Adjective("clean", "sauber", "", "cleaner", "sauberer")
DIRTY = Adjective("dirty", "schmutzig", "", "dirtier", "schmutziger")
HEAVY = Adjective("heavy", "schwer", "", "heavier", "schwerer")
WARM = Adjective("warm", "warm", "", "warmer", "wärmer")
BROKEN = Adjective("broken", "kaputt")
INTERESTING = Adjective("interesting", "interessant", "", "more interesting", "interessanter")
BORING = Adjective("boring", "langweilig", "", "more boring", "langweiliger")
LONG = Adjective("long", "lang", "", "longer", "länger")
SHORT = Adjective("short", "kurz", "", "shorter", "kürzer")
FRESH = Adjective("fresh", "frisch", "", "fresher", "frischer")
COLD = Adjective("cold", "kalt", "", "colder", "kälter")
EMPTY = Adjective("empty", "leer")
DARK = Adjective("dark", "dunkel", "dunkl", "darker", "dunkler")
QUIET = Adjective("quiet", "ruhig", "", "quieter", "ruhiger")
COMFORTABLE = Adjective("comfortable", "bequem", "", "more comfortable", "bequemer")
GOOD = Adjective("good", "gut", "", "better", "besser")
COLORS = [RED, BLUE, GREEN, BLACK, WHITE]

# Sensible combinations: (things, their adjectives).
SUITS = [
    (
        GARMENTS,
        [NEW, OLD, EXPENSIVE, CHEAP, BEAUTIFUL, UGLY, CLEAN, DIRTY, WARM, LONG, SHORT, *COLORS],
    ),
    (BELONGINGS, [NEW, OLD, BIG, SMALL, EXPENSIVE, CHEAP, BEAUTIFUL, UGLY, HEAVY, BLACK, RED]),
    (VEHICLES, [NEW, OLD, EXPENSIVE, CHEAP, CLEAN, DIRTY, BROKEN, *COLORS]),
    (
        FURNITURE,
        [NEW, OLD, BIG, SMALL, EXPENSIVE, CHEAP, BEAUTIFUL, UGLY, HEAVY, WHITE, COMFORTABLE],
    ),
    (DISHWARE, [CLEAN, DIRTY, NEW, OLD, SMALL, EMPTY, BEAUTIFUL]),
    (READING, [INTERESTING, BORING, LONG, SHORT, NEW, OLD, GOOD]),
    (DISHES, [FRESH, BIG, SMALL, GOOD, COLD]),
    (ROOMS, [BIG, SMALL, CLEAN, DIRTY, DARK, WARM, COLD, QUIET, BEAUTIFUL, EXPENSIVE]),
    (ANIMALS, [BIG, SMALL, YOUNG, OLD, BEAUTIFUL, BLACK, WHITE]),
]

SAID_OF = [
    (thing_, quality) for things, qualities in SUITS for thing_ in things for quality in qualities
]

# --- places: (English, German) of the direction and of the location
# ---------------------------------------------------

PLACES = {
    "park": (("to the park", "in den Park"), ("in the park", "im Park")),
    "town": (("into town", "in die Stadt"), ("in town", "in der Stadt")),
    "cinema": (("to the cinema", "ins Kino"), ("at the cinema", "im Kino")),
    "theatre": (("to the theatre", "ins Theater"), ("at the theatre", "im Theater")),
    "museum": (("to the museum", "ins Museum"), ("at the museum", "im Museum")),
    "school": (("to school", "zur Schule"), ("at school", "in der Schule")),
    "supermarket": (
        ("to the supermarket", "in den Supermarkt"),
        ("at the supermarket", "im Supermarkt"),
    ),
    "restaurant": (("to the restaurant", "ins Restaurant"), ("at the restaurant", "im Restaurant")),
    "station": (("to the station", "zum Bahnhof"), ("at the station", "am Bahnhof")),
    "airport": (("to the airport", "zum Flughafen"), ("at the airport", "am Flughafen")),
    "library": (("to the library", "in die Bibliothek"), ("at the library", "in der Bibliothek")),
    "office": (("to the office", "ins Büro"), ("at the office", "im Büro")),
    "zoo": (("to the zoo", "in den Zoo"), ("at the zoo", "im Zoo")),
    "beach": (("to the beach", "an den Strand"), ("at the beach", "am Strand")),
    "lake": (("to the lake", "an den See"), ("at the lake", "am See")),
    "market": (("to the market", "auf den Markt"), ("at the market", "auf dem Markt")),
    "doctor": (("to the doctor", "zum Arzt"), ("at the doctor's", "beim Arzt")),
    "bakery": (("to the bakery", "zum Bäcker"), ("at the bakery", "beim Bäcker")),
    "garden": (("to the garden", "in den Garten"), ("in the garden", "im Garten")),
    "kitchen": (("to the kitchen", "in die Küche"), ("in the kitchen", "in der Küche")),
    "hospital": (("to the hospital", "ins Krankenhaus"), ("in hospital", "im Krankenhaus")),
    "church": (("to church", "in die Kirche"), ("at church", "in der Kirche")),
    "bed": (("to bed", "ins Bett"), ("in bed", "im Bett")),
    "home": (("home", "nach Hause"), ("at home", "zu Hause")),
    "work": (("to work", "zur Arbeit"), ("at work", "bei der Arbeit")),
}
CITIES = [
    ("Berlin", "Berlin"),
    ("Hamburg", "Hamburg"),
    ("Munich", "München"),
    ("Cologne", "Köln"),
    ("Vienna", "Wien"),
    ("London", "London"),
    ("Paris", "Paris"),
    ("Rome", "Rom"),
]
COUNTRIES = [
    ("Germany", "Deutschland"),
    ("France", "Frankreich"),
    ("England", "England"),
    ("Italy", "Italien"),
    ("Spain", "Spanien"),
    ("Austria", "Österreich"),
    ("Poland", "Polen"),
]
GAMES = [
    ("football", "Fußball"),
    ("tennis", "Tennis"),
    ("the piano", "Klavier"),
    ("the guitar", "Gitarre"),
    ("chess", "Schach"),
    ("cards", "Karten"),
]
LANGUAGES = [
    ("English", "Englisch"),
    ("German", "Deutsch"),
    ("French", "Französisch"),
    ("Spanish", "Spanisch"),
]

# --- times
# ------------------------------------------------------------------------------------------------------------  # noqa: E501
#

WEEKDAYS = [
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
]
MONTHS = [
    ("January", "Januar"),
    ("February", "Februar"),
    ("March", "März"),
    ("April", "April"),
    ("May", "Mai"),
    ("June", "Juni"),
    ("July", "Juli"),
    ("August", "August"),
    ("September", "September"),
    ("October", "Oktober"),
    ("November", "November"),
    ("December", "Dezember"),
]
ON_WEEKDAYS = [(f"on {en}", f"am {de}") for en, de in WEEKDAYS]
COMING = [
    ("today", "heute"),
    ("tomorrow", "morgen"),
    ("this evening", "heute Abend"),
    ("next week", "nächste Woche"),
    ("at the weekend", "am Wochenende"),
    ("tomorrow evening", "morgen Abend"),
    ("this afternoon", "heute Nachmittag"),
]
GONE = [
    ("yesterday", "gestern"),
    ("last week", "letzte Woche"),
    ("yesterday evening", "gestern Abend"),
    ("this morning", "heute Morgen"),
    ("two days ago", "vor zwei Tagen"),
    ("last Sunday", "letzten Sonntag"),
]
REGULARLY = [
    ("every day", "jeden Tag"),
    ("every morning", "jeden Morgen"),
    ("every evening", "jeden Abend"),
    ("in the evening", "abends"),
    ("at the weekend", "am Wochenende"),
    *((f"every {en}", f"jeden {de}") for en, de in WEEKDAYS),
]
HOW_OFTEN = [
    ("often", "oft"),
    ("always", "immer"),
    ("sometimes", "manchmal"),
    ("rarely", "selten"),
    ("never", "nie"),
]
