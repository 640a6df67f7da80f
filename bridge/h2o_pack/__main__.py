"""Lets `python -m h2o_pack` do what the `h2o-pack` script does."""

from h2o_pack.cli import main

if __name__ == "__main__":
    main(prog_name="h2o-pack")
