"""The rows of the table, by section; ``spica.knobs.table`` puts them together."""
