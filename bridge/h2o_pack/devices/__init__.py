"""iPhones and iPads: what an app may use of their memory, and how fast they read it."""
