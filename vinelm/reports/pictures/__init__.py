"""Pictures of a report as SVG in the colours of the page's theme: lines and flows by Matplotlib, the others by hand."""
