"""iPhones and iPads: the memory that an app may use, and its bandwidth."""
