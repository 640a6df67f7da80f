"""Which rows should a cache keep? Many policies tried on the bundled demo model, quickly."""
