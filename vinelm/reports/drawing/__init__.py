"""Pictures of a report, drawn with Matplotlib as SVG whose colours are those of the page's theme."""

from vinelm.extras import require_extra

require_extra("report", "a report", "matplotlib")
