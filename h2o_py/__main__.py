"""`python -m h2o_py generate`: mlx_lm's command with H2O caches; `bench`: how fast they are."""

from __future__ import annotations

import sys

from h2o_py.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
