"""`python -m h2o_py generate`: mlx_lm's command line with H2O caches."""

from __future__ import annotations

import sys

from h2o_py.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
