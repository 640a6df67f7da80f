"""Whether mlx, mlx-lm and the Swift packages are still what h2o-pack relies on."""
