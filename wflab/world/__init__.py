"""Worlds: where runs live. `protocol` says what one can do; `sqlite` is the default."""
