"""``explain --html``: one page, self-contained."""
