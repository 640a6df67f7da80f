"""Whether upstream is still what h2o-pack relies on."""
