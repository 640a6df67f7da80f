"""What a Mac would refuse of the Metal kernels and the C++ that dispatches them."""
