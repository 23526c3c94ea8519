"""Draws the Grafana dashboards with Perses, in a browser, for the pictures of the documentation."""
