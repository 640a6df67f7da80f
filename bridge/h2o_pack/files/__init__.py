"""Files on disk: where downloads are kept, what is written, locked and digested."""
