"""An application's tools: the declarations of what they may do, and records of single calls."""
