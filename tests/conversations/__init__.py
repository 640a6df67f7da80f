"""Long and interrupted conversations with a generated package, on this machine."""
