"""Documents: formats such as HTML and subtitles, and the translation of the text that a person
reads in them."""
