"""A divergence as a page that needs nothing but a browser, and as a trace for a trace viewer."""
