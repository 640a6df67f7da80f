"""Which rows should a cache keep? Many policies tried on the embedded model, quickly."""
