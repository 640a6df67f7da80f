"""An app to which a package will be added: its dependencies, and conflicts with the package."""
