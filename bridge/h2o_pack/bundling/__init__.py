"""Puts a model into a package: fetched, checked, placed, and written down in a manifest.

The folder's and the manifest's names are here, since much of the tool needs them;
`h2o_pack.bundling.bundle` does the work.
"""

FOLDER = "Model"
MANIFEST = "manifest.json"
