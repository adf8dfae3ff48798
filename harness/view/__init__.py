"""View: what people and programs are shown of runs, recipes and environments."""
