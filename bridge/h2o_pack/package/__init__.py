"""The Swift package: rendering its files and building it from start to finish."""
