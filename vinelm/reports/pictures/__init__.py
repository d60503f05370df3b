"""Pictures of a report as SVG in the colours of the page's theme. Matplotlib draws lines and flows; this package draws
the rest.
"""
