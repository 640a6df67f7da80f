"""Writes Jinja templates so that Jinja2 and the app's swift-jinja read them alike."""
