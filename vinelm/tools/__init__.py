"""An application's tools in VineLM: their owner's declarations, and records of single calls."""
