"""The grammar that generates nmt's built-in phrasebook: everyday sentences in English and German.

    numerals, german, english  morphology
    words, lexicon             nouns, adjectives and people in both languages
    clause                     clauses in the word order of each language
    predicates                 what people do, are and have
    patterns                   the sentence patterns, by topic
    sense                      which subjects, verbs and objects make sense together
    sampling                   deterministic selection by a stable hash
    corpus                     the training, validation and test sets

README.md explains how to generate the phrasebook and how to add a theme.

Every English sentence has one German translation. English marks what German distinguishes: plain
"you" is du, "you two" and "children" are ihr, a name with Mr or Mrs is Sie.
"""
