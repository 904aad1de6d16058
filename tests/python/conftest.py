import places  # noqa: F401  (sets paths and variables before anything is imported)
