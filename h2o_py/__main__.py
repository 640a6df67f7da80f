"""`python -m h2o_py`: generate with H2O caches, measure them, profile a model."""

from __future__ import annotations

import sys

from h2o_py.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
