"""Attacks on the core and on what loads files: `make fuzz` runs them without end.

An attack changes what a cache saves, a file, or the arguments of a call, at random from a
seed, and then uses whatever is taken. It may be refused with an error of ours; anything else
is a finding: another exception, or a process that AddressSanitizer or
UndefinedBehaviorSanitizer ends.
"""
