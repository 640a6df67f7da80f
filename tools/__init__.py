"""Programs for developers of h2o-pack, run as python -m tools.NAME."""
