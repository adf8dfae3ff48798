"""One run: what its series show, reduced to what a comparison needs."""
