"""The page of a report: its content, independent of the format, and its rendering as one self-contained HTML file."""
