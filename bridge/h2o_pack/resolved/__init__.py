"""Files of Model/ that Swift reads, written from what Python resolved."""
