"""Pictures of a report, drawn with Matplotlib as SVG whose colours are those of the page's theme."""
