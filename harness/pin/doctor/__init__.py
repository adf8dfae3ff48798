"""The doctor: what is wrong with an environment, read from its files without importing them, and how to mend it."""
