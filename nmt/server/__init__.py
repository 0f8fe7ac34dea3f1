"""HTTP server with the interface of LibreTranslate (`POST /translate`), and a page to translate in
a browser."""
