"""One module per section; each has run(bench)."""
