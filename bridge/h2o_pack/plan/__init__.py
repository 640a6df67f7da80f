"""The memory plan: options, fit per device, refusals, and how it is shown."""
