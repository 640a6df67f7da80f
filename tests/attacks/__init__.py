"""Attacks on the core and on all that reads files: `make fuzz` runs them without end.

An attack changes what a cache saves, a file, the arguments of a call, what a command is given
or what a hub answers, at random from a seed, and then uses whatever is taken. It may be refused
with an error of ours; anything else is a finding: another exception, a command that takes too
long, or a process that AddressSanitizer or UndefinedBehaviorSanitizer ends.
"""
